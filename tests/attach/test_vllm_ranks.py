"""A data-parallel vLLM: every rank has a socket, beside those of the others, and says where they are."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fake_vllm
import pytest

from engine.attach.vllm_facts import provenance_of
from engine.attach.vllm_lines import Header, decode
from engine.attach.vllm_ranks import others_in_words, ranks_beside


def rank(number: int) -> Any:
    """The configuration vLLM gives a rank that need not wait for the others: as if it were alone."""
    config = fake_vllm.config()
    config.parallel_config.data_parallel_index = number
    return config


def listening(stack: ExitStack, path: Path) -> None:
    one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    one.bind(str(path))


@pytest.mark.parametrize("name", ["s.sock", "s", "a-dp.sock", "[s].sock"])
def test_ranks_are_found_from_each_of_them(folder: Path, name: str) -> None:
    first = folder / name
    others = {n: first.with_name(f"{first.stem}-dp{n}{first.suffix}") for n in (1, 2, 10)}
    with ExitStack() as stack:
        for path in (first, *others.values(), folder / "other.sock", folder / "other-dp1.sock"):
            listening(stack, path)
        (folder / f"{first.stem}-dp3{first.suffix}").write_text("no socket")
        for path in (first, *others.values()):
            assert ranks_beside(path) == {0: first, **others}
        assert others_in_words(f"unix:{others[1]}", 1) == (
            f"rank 0 at unix:{first}, rank 2 at unix:{others[2]}, rank 10 at unix:{others[10]}"
        )


def test_a_recording_of_one_rank_says_that_there_are_others() -> None:
    header = Header(1, "m", 0.0, 0.0, 7, is_rank=True, rank=1)
    provenance = provenance_of(header, "")
    assert provenance.engine.endswith("data-parallel rank 1")
    assert provenance.why_absent("ranks") == "each tells its own steps elsewhere"
    assert not provenance_of(Header(1, "m", 0.0, 0.0, 7), "").why_absent("ranks")


def test_a_rank_that_is_told_it_is_alone_knows_by_its_processs_name(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBTUI_VLLM_STREAM", str(folder / "steps.jsonl"))
    monkeypatch.setattr(multiprocessing.current_process(), "name", "EngineCore_DP1")
    module.RecordingScheduler(rank(1)).shutdown()
    header = decode((folder / "steps-dp1.jsonl").read_bytes().splitlines()[0])
    assert isinstance(header, Header) and (header.is_rank, header.rank) == (True, 1)
    monkeypatch.setattr(multiprocessing.current_process(), "name", "EngineCore")
    module.RecordingScheduler(rank(0)).shutdown()
    assert json.loads((folder / "steps.jsonl").read_text().splitlines()[0])["is_rank"] is False


def test_without_a_setting_ranks_lie_under_the_process_that_started_them(
    module: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder / "run"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("CBTUI_VLLM_STREAM", raising=False)
    schedulers = []
    for number in (0, 1):
        monkeypatch.setattr(multiprocessing.current_process(), "name", f"EngineCore_DP{number}")
        schedulers.append(module.RecordingScheduler(rank(number)))
    first = folder / "cbtui" / f"cbtui-vllm-{os.getppid()}.sock"
    assert list(ranks_beside(first)) == [0, 1]
    for scheduler in schedulers:
        scheduler.shutdown()
