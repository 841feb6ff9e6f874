"""What a race says: who is where while it runs, and in the end one sentence on what made the difference.

Steps are the schedule's doing and said first; seconds are the machine's, too, and said apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.looks.pieces import Line, Piece, say
from cbtui.racing.score import Lane, Score, same_outputs, score
from cbtui.telling.words import count, seconds
from engine.stream.records import StepRecord

#: A shape a mode, as in the header.
SHAPES = {"continuous": "●", "continuous-padded": "◧", "static": "■", "chunked": "▤"}


def shape(mode: str) -> str:
    """The sign that stands for a mode."""
    return SHAPES.get(mode, "◆")


def commentary(lanes: Sequence[Lane]) -> str:
    """What tells the lanes apart right now."""
    if not any(lane.run for lane in lanes):
        return "Both lanes get the same requests, each by its own clock. They step in turn, one step each."
    done = [lane for lane in lanes if lane.is_done]
    if done and len(done) < len(lanes):
        rest = next(lane for lane in lanes if not lane.is_done)
        return (
            f"{_capital(done[0].name)} has finished, in {count(score(done[0]).steps, 'step')}. "
            f"{_capital(rest.name)} still runs: {_doing(rest)}."
        )
    words = [_doing(lane) for lane in lanes]
    if len(set(words)) == 1:
        return f"Both: {words[0]}."
    return " ".join(f"{_capital(lane.name)}: {text}." for lane, text in zip(lanes, words, strict=True))


def _doing(lane: Lane) -> str:
    state = lane.frame.state
    held = sum(slot.held for slot in state.slots)
    running = len(state.slots) - held
    text = f"{count(running, 'request')} decoding" if running else "nobody runs"
    if held:
        text += f", {count(held, 'slot')} held by {'one' if held == 1 else 'those'} that ended"
    if state.waiting_count:
        text += f", {state.waiting_count:,} waiting"
        if held:
            text += " for the wave to end"
    return text


def verdict(lanes: Sequence[Lane]) -> str:
    """One sentence: what the difference was, and what caused it."""
    one, other = lanes[0], lanes[1]
    a, b = score(one), score(other)
    if _failed(one) or _failed(other):
        return "A forward failed, so the lanes did not do the same work."
    if a.output_tokens != b.output_tokens:
        made = f"{a.output_tokens:,} against {b.output_tokens:,}"
        return f"The lanes made different numbers of tokens ({made}), so their steps cannot be compared."
    if "chunked" in (one.name, other.name):
        return _about_chunks((one, a), (other, b))
    if a.steps == b.steps:
        return _tie((one, a), (other, b))
    (slow, more), (fast, less) = sorted([(one, a), (other, b)], key=lambda pair: -pair[1].steps)
    text = (
        f"{_capital(fast.name)} needed {count(less.steps, 'step')} where {slow.name} needed {more.steps:,} "
        f"({more.steps / less.steps:.2f}×) for the same {count(less.output_tokens, 'token')}"
    )
    if more.dead > less.dead:
        return (
            f"{text}, because {slow.name} spent {count(more.dead, 'slot-step')} on requests that had already "
            f"ended, while others waited for those slots."
        )
    if more.slot_steps - more.useful > less.slot_steps - less.useful:
        return f"{text}, because {slow.name} left slots empty that {fast.name} filled."
    return f"{text}."


def _tie(one: tuple[Lane, Score], other: tuple[Lane, Score]) -> str:
    (wide, more), (narrow, less) = sorted([one, other], key=lambda pair: -pair[1].positions)
    slots = more.slot_steps // max(1, more.steps)
    text = f"A tie: {count(more.steps, 'step')} in both lanes"
    if "static" in (wide.name, narrow.name):
        if slots == 1:
            text += ", because with one slot requests run one after the other in either mode"
        elif more.num_requests <= slots:
            who = count(more.num_requests, "request")
            text += f", because with {slots} slots for {who} nobody had to wait"
        else:
            text += ", because nobody who waited could have been done sooner in another slot"
        extra = more.dead - less.dead
        if extra > 0:
            text += f"; {wide.name} only fed {count(extra, 'dead token')} more, to requests that had ended"
        return f"{text}."
    extra = more.positions - less.positions
    if extra:
        text += (
            f", but {wide.name} sent {more.positions:,} token positions through the model and {narrow.name} "
            f"{less.positions:,}: the {count(extra, 'position')} between them "
            f"{'is' if extra == 1 else 'are'} padding, which a packed row does not have"
        )
    return f"{text}."


def _about_chunks(one: tuple[Lane, Score], other: tuple[Lane, Score]) -> str:
    (cut, pieces), (_, whole) = sorted([one, other], key=lambda pair: pair[0].name != "chunked")
    name = next(lane.name for lane, _ in (one, other) if lane is not cut)
    if not _was_cut(cut):
        steps = f"{whole.steps:,} steps in {name} and {pieces.steps:,} in chunked"
        return f"No prompt was long enough to be cut: {steps}."
    gaps = (whole.longest_gap_s, pieces.longest_gap_s)
    if None in gaps or not gaps[1]:
        return f"Chunked took {count(pieces.steps, 'step')}, {name} {whole.steps:,}."
    extra = pieces.steps - whole.steps
    price = f"for {count(extra, 'step')} more" if extra > 0 else "in as many steps"
    if extra < 0:
        price = f"in {count(-extra, 'step')} fewer"
    return (
        f"The longest a running request waited for its next token was {_ms(gaps[0])} in {name} and "
        f"{_ms(gaps[1])} in chunked, {price}, because chunked feeds a long prompt in pieces beside the "
        f"decodes instead of all at once."
    )


def _was_cut(lane: Lane) -> bool:
    """Whether any prompt was fed in pieces."""
    steps = (record for record in lane.frame.records if isinstance(record, StepRecord))
    return any(segment.num_prompt_left for record in steps for segment in record.segments)


def footnotes(lanes: Sequence[Lane]) -> str:
    """Seconds, and whether the outputs are the same."""
    parts = []
    for lane in lanes:
        figures = score(lane)
        parts.append(f"{lane.name} {seconds(figures.elapsed_s)} at {_ms(figures.step_s)} a step")
    same = (
        "Every output token is the same in both lanes."
        if same_outputs(lanes)
        else "The outputs differ: in half precision, and at near ties, a batch can change which token wins."
    )
    return f"{same} On the lanes' own clocks: {', '.join(parts)}."


def lane_title(lane: Lane) -> str:
    """A lane's name and how far it is: `■ static · step 216 · 391 of 611 tokens · 3 of 6 done`."""
    figures = score(lane)
    parts = [f"{shape(lane.name)} {lane.name}", f"step {figures.steps:,}"]
    if lane.is_done:
        parts[1] = f"done after {count(figures.steps, 'step')}"
        parts.append(seconds(figures.elapsed_s))
    else:
        parts.append(f"{figures.num_finished} of {figures.num_requests} done")
    parts.append(f"{figures.output_tokens:,} tokens")
    return " · ".join(parts)


def table(lanes: Sequence[Lane], cells: int) -> list[Line]:
    """The figures of both lanes side by side, the better one of each pair stronger."""
    scores = [score(lane) for lane in lanes]
    width = max(10, *(len(lane.name) + 3 for lane in lanes))
    label = cells - 2 * width
    head = [(" " * label, "")]
    head += [(f"{shape(lane.name)} {lane.name}".rjust(width), "accent") for lane in lanes]
    lines: list[Line] = [tuple(head)]
    for name, values, texts in _rows(scores):
        styles = _styles(values)
        pieces: list[Piece] = [(name[: label - 1].ljust(label), "dim")]
        pieces += [(text.rjust(width), style) for text, style in zip(texts, styles, strict=True)]
        lines.append(tuple(pieces))
    return lines


_Row = tuple[str, list[float | None], list[str]]


def _rows(scores: Sequence[Score]) -> list[_Row]:
    """Name, what is compared (less is better), and what is written."""

    def steps(values: list[float | None], waiting: list[str]) -> list[str]:
        return [w if v is None else f"{v:,.1f}" for v, w in zip(values, waiting, strict=True)]

    started = [f"{s.num_started} of {s.num_requests}" for s in scores]
    done = [f"{s.num_finished} of {s.num_requests}" for s in scores]
    rows: list[_Row] = [
        ("steps", [s.steps for s in scores], [f"{s.steps:,}" for s in scores]),
        (
            "mean first token, steps",
            [s.ttft_steps for s in scores],
            steps([s.ttft_steps for s in scores], started),
        ),
        (
            "mean completion, steps",
            [s.completion_steps for s in scores],
            steps([s.completion_steps for s in scores], done),
        ),
    ]
    if any(s.barrier_steps is not None for s in scores):
        rows.append(
            (
                "  delivered at the barrier",
                [None, None],
                ["" if s.barrier_steps is None else f"{s.barrier_steps:,.1f}" for s in scores],
            )
        )
    rows += [
        ("token positions", [s.positions for s in scores], [f"{s.positions:,}" for s in scores]),
        ("  padding", [s.padding for s in scores], [f"{s.padding:,}" for s in scores]),
        ("  dead work", [s.dead for s in scores], [f"{s.dead:,}" for s in scores]),
        ("a step, mean", [None, None], [_ms(s.step_s) for s in scores]),
        ("longest gap in a text", [None, None], [_ms(s.longest_gap_s) for s in scores]),
        ("mean first token", [s.ttft_s for s in scores], [seconds(s.ttft_s) for s in scores]),
        ("mean completion", [s.completion_s for s in scores], [seconds(s.completion_s) for s in scores]),
        ("lane's clock", [None, None], [seconds(s.elapsed_s) for s in scores]),
    ]
    return rows


def _ms(value_s: float | None) -> str:
    """Milliseconds: a mean step is to be compared closely."""
    return "–" if value_s is None else f"{value_s * 1000:,.1f} ms"


def _styles(values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(set(known)) == 1:
        return ["" for _ in values]
    return ["strong" if value == min(known) else "" for value in values]


def sentence(lanes: Sequence[Lane]) -> list[Line]:
    """What the race says now: live, or in the end the verdict and its footnotes."""
    if failure := next((lane.frame.state.failure for lane in lanes if lane.frame.state.failure), None):
        return [
            say((f"The race has ended: {failure.message}.", "warn")),
            say(("Esc goes back to your own engine; if its model is gone it is loaded again.", "dim")),
        ]
    if all(lane.is_done for lane in lanes):
        return [say((verdict(lanes), "strong")), say((footnotes(lanes), "dim"))]
    return [say(commentary(lanes))]


def _failed(lane: Lane) -> bool:
    return any(story.finish is not None and story.finish.reason == "error" for story in lane.stories)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
