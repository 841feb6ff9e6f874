"""The sockets of a data-parallel vLLM's ranks, which lie side by side. Looks at names and opens none.

Each rank schedules by itself and tells its own steps; `cbtui_vllm.places` names them.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path

_RANK = re.compile(r"-dp(\d+)$")


def ranks_beside(path: Path) -> dict[int, Path]:
    """The sockets of all ranks by number, this one's included."""
    stem, ending = _RANK.sub("", path.stem), path.suffix
    found = {0: path.with_name(stem + ending)}
    for one in path.parent.glob(f"{glob.escape(stem)}-dp*{glob.escape(ending)}"):
        if (number := _RANK.search(one.stem)) is not None:
            found[int(number[1])] = one
    return {number: found[number] for number in sorted(found) if found[number].is_socket()}


def others_in_words(address: str, rank: int) -> str:
    """Where the steps of the other ranks are told, for a person who may attach there.

    Args:
        address: of the rank that is followed; empty: it is a file.
        rank: its number.
    """
    sockets = ranks_beside(Path(address.removeprefix("unix:"))) if address else {}
    places = [f"rank {number} at unix:{path}" for number, path in sockets.items() if number != rank]
    return ", ".join(places) or "each tells its own steps elsewhere"
