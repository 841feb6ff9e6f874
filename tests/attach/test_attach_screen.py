"""A followed server in the screen: what is its own word, what is inferred, and what is not told is said."""

from __future__ import annotations

import re
from html import unescape
from itertools import count
from pathlib import Path

import msgspec
import pytest
from fake_server import DATA
from test_llama_steps import recorded_looks
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.widgets.centre import Centre
from cbtui.widgets.slots import OTHERS
from engine.attach import stream
from engine.attach.llama import _ABSENT, _INFERRED
from engine.attach.llama_steps import StepBuilder
from engine.attach.metrics_text import Samples
from engine.attach.seen import StepSeen
from engine.attach.seen_records import SeenRecords, Width
from engine.attach.source import SourceAway
from engine.attach.vllm_figures import scrape_of
from engine.live.state import EngineState, Failure
from engine.runner import ModelInfo
from engine.stream.records import STOP_OR_ABORT, Provenance, Record, StepRecord
from engine.stream.trace_files import TraceRecorder, header_of, read_trace
from tests.app.replay import Feeder, drive

LLAMA = Provenance(
    engine="llama.cpp server", address="http://127.0.0.1:8080", inferred=_INFERRED, absent=_ABSENT
)
VLLM = Provenance(
    engine="vLLM, by its metrics",
    address="http://127.0.0.1:8000",
    inferred=(("mask", "of prompts sent from here"), ("row", "of prompts sent from here")),
    absent=(
        ("requests", "it names none"),
        ("slots", "it does not tell their number"),
        ("budget", "not told"),
        ("blocks", "it tells no block tables"),
    ),
)
SIZES = [(160, 50), (80, 24)]


def llama_records() -> list[Record]:
    """The recorded series of a real server, as the source writes it down."""
    looks = recorded_looks()
    builder, writer = StepBuilder(), SeenRecords(count())
    builder.begin(*looks[0])
    writer.num_deferred = 3
    writer.figures({"n_decode_total": 40.0, "tokens_predicted_total": 90.0})
    return [one for look in looks[1:] for step in builder.look(*look) for one in writer.records(step, 3)]


def vllm_records() -> list[Record]:
    """Steps of which only the width is known, or not even that."""
    writer = SeenRecords(count())
    writer.figures(scrape_of(Samples((DATA / "vllm_metrics_busy.txt").read_text())).figures)
    writer.num_deferred = 2
    first = StepSeen(0.0, 0.25, is_whole=False)
    alone = writer.records(first, 3, width=Width(12, 2), pool=(182, 3 / 182))
    writer.missed(4)
    second = StepSeen(0.25, 0.5, is_seen=False, is_whole=False)
    return [*alone, *writer.records(second, 3, pool=(182, 3 / 182))]


def attached(provenance: Provenance, **changes: object) -> dict[str, object]:
    model = ModelInfo(name="m", source="m", device="", dtype="Q4_1", has_chat_template=True)
    return {"model": model, "provenance": provenance, "speed": None} | changes


def seen(app: CbtuiApp) -> str:
    """All text on the screen, with single spaces."""
    texts = re.findall(r"<text[^>]*>(.*?)</text>", app.export_screenshot())
    return " ".join(" ".join(unescape(text) for text in texts).split())


@pytest.mark.parametrize("refused", [(), stream.REFUSED])
def test_who_can_be_sent_nothing_is_not_said_to_take_prompts(refused: tuple[tuple[str, str], ...]) -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA, refused=refused))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        text = str(app.main.query_one(Centre).content)
        assert ("Type a prompt" in text) == ("Esc d" in text) == (not refused)
        assert ("only tells what happens" in text) == bool(refused)

    drive(feeder, script)


def test_a_server_is_named_and_what_is_inferred_of_its_steps_is_said() -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert "Following llama.cpp server" in str(app.main.query_one(Centre).content)
        feeder.play(llama_records(), upto=13, **attached(LLAMA, paused=True, status="paused"))
        app.main.look()
        await pilot.pause()
        text = seen(app)
        assert "http://127.0.0.1:8080" in text and "derived from lengths" in text
        assert "order inferred · rebuilt" in text, "step 13 passed between two looks"
        assert (
            "batch fill" not in text and "0 of 0" not in text and "budget" not in text.partition("Slots")[0]
        )
        assert re.search(r"server since (its )?start: 40 steps, 90 output tokens", text)
        assert "3 requests wait; the server does not say which" in text
        assert "Rebuilt from later counts" in text
        await pilot.press("escape", "k")
        assert "no KV blocks to show: llama.cpp has cells a slot" in seen(app)

    drive(feeder, script)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("records", [llama_records(), vllm_records()])
def test_every_panel_draws_steps_of_which_little_is_known(
    size: tuple[int, int], records: list[Record]
) -> None:
    feeder = Feeder()
    source = VLLM if len(records) == 2 else LLAMA
    feeder.ready(**attached(source))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(records, **attached(source))
        app.main.look()
        await pilot.press(
            "escape", *"zzz[]{}0.1234", "tab", "down", "right", "enter", "escape", "[", "[", "z"
        )
        await pilot.pause()
        assert app.is_running

    drive(feeder, script, size)


def test_a_server_that_names_nobody_is_told_by_its_own_figures() -> None:
    feeder = Feeder()
    feeder.ready(**attached(VLLM))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        first, second = vllm_records()
        feeder.play([first], **attached(VLLM))
        app.main.look()
        await pilot.pause()
        text = seen(app)
        assert "Packed row [1, 12]" in text and "whose they are is not known" in text
        for figure in ("running 3", "waiting 2 (capacity 2)", "KV 2 %", "prefix hits 0 of 0 tokens"):
            assert figure in text
        assert text.count(OTHERS) == 3 and "Slots 3/3" in text and "3 slots seen" in text
        feeder.play([second], **attached(VLLM))
        app.main.look()
        await pilot.pause()
        text = seen(app)
        assert "4 missed before" in text and "Packed row [1, ?]" in text
        assert "How many tokens were in it, and whose, is not told" in text
        assert "? tokens" in text and " 0 tokens · " not in text, "what is not known is no nought"

    drive(feeder, script)


def test_a_lost_server_is_a_panel_and_what_was_seen_stays() -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        failure = Failure(
            "server", "it does not answer: it \x1b[31mbroke off", retry_s=4.0, title=SourceAway.title
        )
        feeder.play(llama_records(), **attached(LLAMA, status="failed", failure=failure))
        app.main.look()
        await pilot.pause()
        said = str(app.main.query_one(Centre).content)
        assert "server is not there" in said and "in 4 s" in said and "\x1b" not in said
        assert "server lost" in seen(app) and app.main.follower.record is not None
        await pilot.press("escape", "R")
        assert [type(one).__name__ for one in feeder.commands] == ["Restart"]

    drive(feeder, script)


def test_quitting_asks_only_for_prompts_sent_from_here() -> None:
    from cbtui.orders import num_unfinished

    last = next(one for one in reversed(llama_records()) if isinstance(one, StepRecord))
    state = EngineState(slots=last.slots, provenance=LLAMA)
    assert last.slots and num_unfinished(state) == 0
    own = tuple(msgspec.structs.replace(slot, request_id="own-1") for slot in last.slots[:1])
    assert num_unfinished(msgspec.structs.replace(state, slots=own)) == 1


def test_a_recording_of_a_server_tells_the_same_when_it_is_replayed(tmp_path: Path) -> None:
    records = llama_records()
    path = tmp_path / "trace.jsonl.gz"
    recorder = TraceRecorder(path)
    model = attached(LLAMA)["model"]
    assert isinstance(model, ModelInfo)
    recorder.begin(header_of(model, EngineState().config, LLAMA))
    for record in records:
        recorder.write(record)
    recorder.close()
    read = read_trace(path)
    assert list(read.records) == records and read.header.provenance == LLAMA and not read.error


def test_how_a_request_ended_is_told_as_far_as_it_is_known() -> None:
    """What met a stop string and what was cancelled are one thing in a vLLM's stream."""
    records = llama_records()
    finish = next(one for record in records for one in record.events.finished)

    def with_end(record: Record) -> Record:
        finished = tuple(
            msgspec.structs.replace(one, reason=STOP_OR_ABORT) if one == finish else one
            for one in record.events.finished
        )
        return msgspec.structs.replace(
            record, events=msgspec.structs.replace(record.events, finished=finished)
        )

    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(map(with_end, records), **attached(LLAMA))
        app.main.look()
        await pilot.pause()
        text = seen(app)
        assert "stop string or cancelled" in text and f"({STOP_OR_ABORT})" not in text

    drive(feeder, script)
