"""Why another client's request ended is not told by llama.cpp's slots, and nobody makes it up."""

from __future__ import annotations

import csv
import io
from itertools import count

import msgspec
import pytest
from test_attach_screen import LLAMA, attached, seen
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.export.page_data import page_data
from cbtui.export.run import recorded_run
from cbtui.export.tables import REQUESTS, tables
from engine.attach.llama_steps import Known, StepBuilder
from engine.attach.seen import SlotSeen
from engine.attach.seen_records import SeenRecords
from engine.config import EngineConfig
from engine.runner import ModelInfo
from engine.stream.records import END_NOT_TOLD, Record
from engine.stream.trace_files import header_of
from tests.app.replay import Feeder, drive

#: As llama.cpp writes the seed of a request that came without one.
ANY_SEED = 4_294_967_295


def slot(number: int, decoded: int, *, most: int = 50, **changes: object) -> SlotSeen:
    one = SlotSeen(
        slot=number,
        n_ctx=1024,
        is_processing=True,
        task=number,
        num_prompt=5,
        num_processed=5,
        num_decoded=decoded,
        max_tokens=most,
        seed=ANY_SEED,
    )
    return msgspec.structs.replace(one, **changes)


def looks(*, has_witness: bool, most: int = 50) -> list[tuple[float, tuple[SlotSeen, ...]]]:
    """One request that is gone at the last look, and one beside it that counts the steps, or none."""
    others = [(slot(1, decoded),) if has_witness else () for decoded in range(4)]
    gone = slot(0, 2, most=most, is_processing=False)
    lanes = [*(slot(0, decoded, most=most) for decoded in range(3)), gone]
    return [(0.1 * n, (lane, *other)) for n, (lane, other) in enumerate(zip(lanes, others, strict=True))]


def records_of(**options: object) -> list[Record]:
    builder, writer = StepBuilder(), SeenRecords(count())
    first, *later = looks(**options)  # type: ignore[arg-type]
    builder.begin(0.0, tuple(msgspec.structs.replace(one, is_processing=False, task=-1) for one in first[1]))
    return [
        one for look in [first, *later] for step in builder.look(*look) for one in writer.records(step, 2)
    ]


def ends(records: list[Record]) -> list[str]:
    return [finish.reason for record in records for finish in record.events.finished]


@pytest.mark.parametrize("has_witness", [True, False])
def test_only_who_made_all_it_might_is_said_to_have_ended_by_its_length(has_witness: bool) -> None:
    assert ends(records_of(has_witness=has_witness)) == [END_NOT_TOLD]
    assert ends(records_of(has_witness=has_witness, most=3)) == ["length"]


def test_what_is_known_of_an_end_stands() -> None:
    builder = StepBuilder()
    first, *later = looks(has_witness=True)
    builder.begin(*first)
    steps = [step for look in later for step in builder.look(*look, lambda _: Known(5, 2, "abort"))]
    assert [one.reason for step in steps for one in step.ended] == ["abort"]


@pytest.mark.parametrize("size", [(160, 50), (120, 40), (80, 24)])
def test_every_panel_says_that_it_is_not_told(size: tuple[int, int]) -> None:
    feeder, records = Feeder(), records_of(has_witness=True)
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(records, **attached(LLAMA, paused=True, status="paused"))
        app.main.look()
        await pilot.pause()
        texts = [seen(app)]
        await pilot.press("escape", *("4" if size[0] == 80 else "2" if size[0] == 120 else ""))
        texts.append(seen(app))
        app.main.selected = next(iter(app.main.follower.ledger.finished))
        await pilot.press("1", "enter")
        await pilot.pause()
        texts.append(seen(app))
        assert all("not told" in text for text in texts), texts
        assert not any(word in text for text in texts for word in ("(stop)", "chose to stop", "cancelled"))

    drive(feeder, script, size)


def test_exports_say_so_too_and_name_no_seed_that_nobody_chose() -> None:
    model = ModelInfo(name="m", source="m", device="", dtype="")
    run = recorded_run(header_of(model, EngineConfig(), LLAMA), records_of(has_witness=True))
    assert [one["reason"] for one in page_data(run)["requests"]] == ["reason not told", ""]
    rows = list(csv.DictReader(io.StringIO(tables(run)[REQUESTS], newline="")))
    assert [row["finish_reason"] for row in rows] == [END_NOT_TOLD, ""]
    assert {row["seed"] for row in rows} == {""}
