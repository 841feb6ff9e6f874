"""Pictures of a real vLLM's steps, from its recorded streams."""

from __future__ import annotations

from collections.abc import Callable

from test_snapshots import pressing
from vllm_streams import folded, lines_of, steps_of

from cbtui.app import CbtuiApp
from engine.attach import loop, stream
from engine.attach.vllm_facts import config_of, info_of, provenance_of
from engine.attach.vllm_lines import Header
from tests.app.replay import Feeder

Picture = Callable[..., bool]
LARGE, MEDIUM = (160, 50), (120, 40)


def following(name: str, step: int) -> CbtuiApp:
    """The screen on a server that has just done that step."""
    lines = lines_of(name)
    assert isinstance(lines[0], Header)
    feeder = Feeder()
    feeder.play(
        folded(lines),
        upto=step,
        model=info_of(lines[0]),
        config=config_of(lines[0]),
        provenance=provenance_of(lines[0], "unix:/run/user/1000/cbtui/vllm.sock"),
        refused=(*loop.REFUSED, *stream.REFUSED),
    )
    return CbtuiApp(feeder.link)


def preemption() -> int:
    """The step in which a request gave way."""
    return next(record.step for record in steps_of(folded(lines_of("pressed"))) if record.events.preempted)


def test_a_new_prompt_beside_two_decodes(snap_compare: Picture) -> None:
    assert snap_compare(following("tutorial", 7), terminal_size=LARGE, run_before=pressing())


def test_a_request_that_gave_way(snap_compare: Picture) -> None:
    assert snap_compare(following("pressed", preemption()), terminal_size=MEDIUM, run_before=pressing())


def test_block_tables(snap_compare: Picture) -> None:
    app = following("pressed", preemption() - 1)
    assert snap_compare(app, terminal_size=LARGE, run_before=pressing("k"))
