"""The result of a run, in words: its slot-steps, and the same requests in another mode beside it.

Claims are about steps, which the mode decides; seconds are said apart, because they are the machine's.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, say
from cbtui.telling.words import count, percent, seconds
from engine.stream.metrics import RunSummary


def modes_in_words(run: RunSummary) -> str:
    """`static`, or `continuous → static` where the mode was switched."""
    return " → ".join(run.modes)


def summary(run: RunSummary) -> str:
    """`static: 480 steps, 611 of 1,440 slot-steps useful (42 %), 829 dead`."""
    share = percent(run.useful / run.slot_steps) if run.slot_steps else "–"
    return (
        f"{modes_in_words(run)}: {count(run.steps, 'step')}, {run.useful:,} of "
        f"{count(run.slot_steps, 'slot-step')} useful ({share}), {run.dead:,} dead"
    )


def twin_of(run: RunSummary, runs: Sequence[RunSummary]) -> RunSummary | None:
    """The newest earlier run of the same requests in another mode."""
    for other in reversed(runs):
        if other is not run and other.workload == run.workload and other.modes != run.modes and run.workload:
            return other
    return None


def result_lines(frame: Frame) -> list[Line]:
    """The last run's result: its line, its twin's, what made the difference, and the seconds."""
    run = _told_run(frame)
    if run is None:
        return []
    twin = twin_of(run, frame.runs)
    if twin is None:
        # A server that is followed keeps its mode.
        again = (
            ""
            if frame.state.why_refused("mode")
            else " Run the same requests in another mode to see both here."
        )
        return [say((summary(run), "strong")), say(alone(run)), say((f"{pace(run)}.{again}", "dim"))]
    slots = (slots_of(run), slots_of(twin))
    # Different numbers of slots belong to the lines they explain.
    tail = [f" ({_slots(number)})" if slots[0] != slots[1] else "" for number in slots]
    return [
        say((summary(run) + tail[0], "strong")),
        say((summary(twin) + tail[1], "strong")),
        say(difference(run, twin)),
        say((f"{pace(run)}; {pace(twin)}", "dim")),
    ]


def result_in_two_lines(frame: Frame) -> list[Line]:
    """The last run's result for a screen with no room: its line, then its twin's or what it means."""
    run = _told_run(frame)
    if run is None:
        return []
    twin = twin_of(run, frame.runs)
    if twin is None:
        return [say((summary(run), "strong")), say(alone(run))]
    slow = run if run.steps > twin.steps else twin
    ratio = max(run.steps, twin.steps) / min(run.steps, twin.steps)
    is_clear = ratio > 1 and not _doubt(run, twin)
    return [
        say((summary(one), "strong"), (f" · {ratio:.2f}×" if is_clear and one is slow else "", "warn"))
        for one in (run, twin)
    ]


def _told_run(frame: Frame) -> RunSummary | None:
    """The last run; None: there is none, or what others had of its slots is not known."""
    run = frame.runs[-1] if frame.runs else None
    return run if run is not None and run.slot_steps and run.is_whole else None


def pace(run: RunSummary) -> str:
    """`static 26.4 s at 55 ms a step`."""
    return f"{modes_in_words(run)} {seconds(run.elapsed_s)} at {seconds(run.elapsed_s / run.steps)} a step"


def slots_of(run: RunSummary) -> float:
    """Slots on offer in a step, on average."""
    return run.slot_steps / run.steps


def _slots(number: float) -> str:
    return count(int(number), "slot") if number == int(number) else f"{number:.1f} slots"


def alone(run: RunSummary) -> str:
    """What a run's figures mean, without another one to hold against."""
    meaning = "A slot-step is one slot during one step. "
    empty = run.slot_steps - run.useful - run.dead
    if run.dead:
        return (
            f"{meaning}The {count(run.dead, 'dead one')} went to requests that had already ended: static "
            f"batching gives no slot away before the longest request of its wave has ended too."
        )
    if not empty:
        return f"{meaning}Every one of them fed a request a token it needed."
    if run.kept_empty:
        why = (
            "static batching lets nobody in before the wave has ended"
            if "static" in run.modes
            else "there were not enough free KV blocks, or not enough of the token budget"
        )
        return f"{meaning}{run.kept_empty:,} stood empty while others waited: {why}."
    if run.num_requests > slots_of(run) and "static" in run.modes:
        return f"{meaning}{empty:,} stood empty when there was nobody left to give them to."
    if run.num_requests > slots_of(run):
        return (
            f"{meaning}A slot went to the next request as soon as its own had ended; {empty:,} stood empty "
            f"when there was nobody left to give them to."
        )
    return f"{meaning}{empty:,} stood empty: there were more slots than requests to fill them."


def difference(run: RunSummary, twin: RunSummary) -> str:
    """One sentence or two on why the runs differ. Says so where they cannot be compared."""
    doubt = _doubt(run, twin)
    slow, fast = (run, twin) if run.steps >= twin.steps else (twin, run)
    if doubt:
        return f"{slow.steps:,} against {count(fast.steps, 'step')}, but {doubt}."
    if slow.steps == fast.steps:
        return _same_steps(run, twin)
    ratio = f"{slow.steps / fast.steps:.2f}×"
    text = (
        f"{_name(slow)} took {ratio} the steps ({slow.steps:,} against {fast.steps:,}) for the same "
        f"{count(run.output_tokens, 'token')}"
    )
    if "static" not in slow.modes:
        return f"{text}."
    if slow.dead > fast.dead:
        spent = f"it spent {count(slow.dead, 'slot-step')} on requests that had already ended"
    else:
        spent = "it left slots empty"
    return (
        f"{text}: while others waited, {spent}, because it gives no slot away before the longest request of "
        f"the wave has ended. {_name(fast)} gave a slot to the next request in the very next step."
    )


def _doubt(run: RunSummary, twin: RunSummary) -> str:
    if slots_of(run) != slots_of(twin):
        return "the slots differed, so the mode alone does not explain it"
    if run.output_tokens != twin.output_tokens:
        made = f"{run.output_tokens:,} against {twin.output_tokens:,} tokens"
        return f"{made} came out, so it was not the same work"
    if run.arrivals != twin.arrivals:
        return "the requests arrived at other steps, so the mode alone does not explain it"
    return ""


def _same_steps(run: RunSummary, twin: RunSummary) -> str:
    static = next((one for one in (run, twin) if "static" in one.modes), None)
    text = f"Both took {count(run.steps, 'step')}"
    wide, narrow = (run, twin) if run.token_positions >= twin.token_positions else (twin, run)
    if static is None:
        if wide.padding > narrow.padding:
            extra = count(wide.padding, "padding position")
            return (
                f"{text}; only the shape differed: {modes_in_words(wide)} sent {extra} through the model "
                f"that a packed row does not have "
                f"({wide.token_positions:,} against {narrow.token_positions:,} positions in all)."
            )
        return f"{text}: the mode made no difference here."
    if slots_of(run) == 1:
        reason = "with one slot, requests run one after the other in either mode"
    elif run.num_requests <= slots_of(run):
        reason = "there was a slot for every request, so nobody waited for a slot"
    else:
        return f"{text}: here, nobody who waited could have been done sooner in another slot."
    if static.dead:
        reason += f". Static still fed {count(static.dead, 'slot-step')} of requests that had already ended"
    return f"{text}: {reason}."


def _name(run: RunSummary) -> str:
    words = modes_in_words(run)
    return words[0].upper() + words[1:]
