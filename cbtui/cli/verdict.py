"""What a comparison comes to, in sentences: are the outputs the same, and why was one mode faster.

Steps and milliseconds a step are said apart, and whether outputs stream or come at the barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from textwrap import wrap

from rich.text import Text

from cbtui.cli.console import Look, listed
from cbtui.telling.alone import COUNTED, counted, verdict_words
from cbtui.telling.naming import letter_of
from engine.stream.comparison import Comparison, ModeResult
from engine.stream.differences import Difference
from engine.stream.ledger import Ledger
from engine.stream.records import NEAR_TIE, Verification

DIFFERENCES_SHOWN = 10


def identity(comparison: Comparison, look: Look) -> list[Text]:
    """Whether every output is the same, and where not."""
    if len(comparison.modes) == 1 and comparison.verdict == "identical":
        return _sentences("One mode only: there is nothing to compare its outputs with.", look)
    names = listed(list(comparison.modes))
    match comparison.verdict:
        case "identical":
            tokens = next(iter(comparison.modes.values())).output_tokens
            text = f"Identical: all {tokens:,} output tokens are the same in {names}."
            return _sentences(text, look, "bold green")
        case "failed":
            errors = [error for result in comparison.modes.values() for error in result.errors]
            return _sentences(f"Failed: {errors[0]}", look, "bold red")
        case "near_tie":
            text = (
                f"Not identical, by a near tie: two candidates were closer than {NEAR_TIE:g} in log "
                "probability, and rounding, which depends on the batch, chose between them."
            )
            style = "bold yellow"
        case "half_precision":
            how = "; use --dtype float32 to compare outputs" if comparison.is_one_code else ""
            dtype = comparison.dtype or "a precision that is not told"
            text = (
                f"Not identical. In {dtype} a batch can change which token wins, so nothing is "
                f"claimed here{how}."
            )
            style = "bold yellow"
        case "not_alone":
            text = f"WRONG: {names} agree, but not with what the model gives a request alone."
            style = "bold red"
        case "mismatch":
            text, style = "MISMATCH: the modes do not give the same outputs.", "bold red"
    shown = comparison.differences[:DIFFERENCES_SHOWN]
    lines = _sentences(text, look, style)
    for difference in shown:
        lines += _sentences(_difference(difference, look), look, indent="  ")
    if len(comparison.differences) > len(shown):
        lines.append(Text(f"  and {len(comparison.differences) - len(shown)} more", style="dim"))
    return lines


def _difference(difference: Difference, look: Look) -> str:
    def side(mode: str, step: int | None, token: int | None, text: str) -> str:
        if token is None:
            return f"had ended in {mode}"
        return f"{look.quoted(text, 24)} ({token}) in {mode}, step {step}"

    gap = "gap unknown" if difference.gap is None else f"gap {difference.gap:.2g}"
    d = difference
    return (
        f"{letter_of(d.request)}, output token {d.output_index + 1}: "
        f"{side(d.mode, d.step, d.token_id, d.text)}; "
        f"{side(d.other, d.other_step, d.other_token_id, d.other_text)}; {gap}"
    )


def alone(comparison: Comparison, ledgers: Mapping[str, Ledger], look: Look) -> list[Text]:
    """Whether every output is what the model gives the request alone, and where not."""
    verified = [
        (mode, place, one)
        for mode, result in comparison.modes.items()
        for place, one in enumerate(result.verified)
        if one is not None
    ]
    if not verified:
        return []
    signs = Counter(one.verdict for _, _, one in verified)
    ways = len(comparison.modes)
    runs = f"{len(verified):,} outputs" + (f" of {ways} modes" if ways > 1 else "")
    if signs["same"] == len(verified):
        drift = max(one.drift for _, _, one in verified)
        text = (
            f"Checked alone: all {runs} are, token for token, what the model's own plain forward gives each "
            f"request by itself (log probabilities within {drift:.1g})."
        )
        return _sentences(text, look, "bold green")
    style = "bold red" if signs["differs"] else "bold yellow"
    counts = counted(one for _, _, one in verified)
    lines = _sentences(f"Checked alone, {runs}: {counts}.", look, style)
    others = sorted((entry for entry in verified if entry[2].verdict != "same"), key=_by_weight)
    for mode, place, one in others[:DIFFERENCES_SHOWN]:
        words = verdict_words(one, ledgers[mode])
        lines += _sentences(f"{letter_of(place)} in {mode}: {words}", look, indent="  ")
    if len(others) > DIFFERENCES_SHOWN:
        lines.append(Text(f"  and {len(others) - DIFFERENCES_SHOWN} more", style="dim"))
    return lines


def _by_weight(entry: tuple[str, int, Verification]) -> int:
    return list(COUNTED).index(entry[2].verdict)


def closing(comparison: Comparison, look: Look) -> list[Text]:
    """Why, in a few sentences: the first mode against the last."""
    modes = list(comparison.modes.items())
    if len(modes) < 2 or comparison.verdict == "failed":
        return []
    (first_name, first), (last_name, last) = modes[0], modes[-1]
    lines = [Text("Why", style="bold")]
    for text in (
        _about_steps(first_name, first, last_name, last, look),
        _about_time(first_name, first, last_name, last, look, is_one_code=comparison.is_one_code),
        _about_delivery(first_name, first, last_name, last),
    ):
        lines += _sentences(text, look)
    return lines


def _about_steps(first_name: str, first: ModeResult, last_name: str, last: ModeResult, look: Look) -> str:
    text = f"Slots: {first.slots:,} against {last.slots:,}. " if first.slots != last.slots else ""
    return text + _steps_words(first_name, first, last_name, last, look)


def _steps_words(first_name: str, first: ModeResult, last_name: str, last: ModeResult, look: Look) -> str:
    if first.steps == last.steps:
        text = f"Both need {first.steps:,} steps: the schedule gains none here"
        if first.streaming.completion_steps == last.streaming.completion_steps:
            text += ", and nobody is complete earlier."
        else:
            text += " over all; what it changes is when each request is complete (below)."
        if first.dead_tokens and not last.dead_tokens:
            text += (
                f" {first_name} still computes {first.dead_tokens:,} positions for requests that have ended."
            )
    else:
        text = f"Steps: {first.steps:,} against {last.steps:,}, {_ratio(first.steps, last.steps, look)}."
        if first.dead_tokens:
            text += (
                f" In {first_name} a finished request keeps its slot until the longest of its wave has"
                f" ended: of {first.steps * first.slots:,} slot-steps {first.dead_tokens:,} were dead work."
                f" In {last_name} the next request enters at once."
            )
    positions = _ratio(first.token_positions, last.token_positions, look)
    return (
        f"{text} Token positions through the model: {first.token_positions:,} against "
        f"{last.token_positions:,}, {positions}."
    )


def _about_time(
    first_name: str, first: ModeResult, last_name: str, last: ModeResult, look: Look, *, is_one_code: bool
) -> str:
    through = "both through the same model code" if is_one_code else "each through its server's own code"
    seconds = _ratio(first.elapsed_s, last.elapsed_s, look)
    return (
        f"A step took {first.step_ms_median:,.1f} ms in {first_name} and {last.step_ms_median:,.1f} ms in "
        f"{last_name} (median, {through}): that depends on the machine, what else it "
        "does, and how many positions a step holds, so it is said apart from the steps. Together: "
        f"{first.elapsed_s:,.2f} s against {last.elapsed_s:,.2f} s, {seconds}."
    )


def _about_delivery(first_name: str, first: ModeResult, last_name: str, last: ModeResult) -> str:
    before, after = first.streaming.completion_steps, last.streaming.completion_steps
    if before is None or after is None:
        return ""
    text = (
        f"If outputs stream, the mean request is complete after {before:,.1f} steps in {first_name} and "
        f"{after:,.1f} in {last_name}"
    )
    if first.at_barrier is not None and first.at_barrier.completion_steps is not None:
        text += f"; delivered at the barrier, {first_name} takes {first.at_barrier.completion_steps:,.1f}"
    return text + "."


def _ratio(before: float, after: float, look: Look) -> str:
    return f"{before / after:.2f}{look.times}" if after else "no ratio"


def _sentences(text: str, look: Look, style: str = "", indent: str = "") -> list[Text]:
    lines = wrap(text, look.width, initial_indent=indent, subsequent_indent=indent)
    return [Text(line, style=style) for line in lines]
