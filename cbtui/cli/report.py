"""The report of `cbtui compare`: a comparison and its records as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.text import Text

from cbtui.cli.admission_log import admission_log
from cbtui.cli.console import Look, badge, listed
from cbtui.cli.step_drawing import draw_mask, draw_row, mask_legend, masks_of, step_heading, telling_steps
from cbtui.cli.timelines import legend, steps_a_column, timeline
from cbtui.cli.verdict import alone, closing, identity
from cbtui.drawing.mask_words import layers_words
from cbtui.telling.naming import letter_of
from engine.scheduling.modes import mode_named
from engine.step.mask import LayerKind
from engine.stream.comparison import Comparison, Latency, ModeResult
from engine.stream.ledger import Ledger
from engine.stream.records import Record, StepRecord

REQUESTS_SHOWN = 20
#: Cells before a timeline's first column.
_TIMELINE_INDENT = 4


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report is made of: the figures and, by mode, the records and their ledger.

    `summaries`: a line about each run; None: what its mode does. `kinds`: the model's kinds of layers.
    """

    comparison: Comparison
    records: Mapping[str, Sequence[Record]]
    ledgers: Mapping[str, Ledger]
    summaries: Mapping[str, str] | None = None
    kinds: Sequence[LayerKind] = (LayerKind(),)


def report(reported: Reported, look: Look) -> list[Text]:
    """All of it, in the order a newcomer needs it."""
    sections = [
        _asked(reported.comparison, reported.summaries, look),
        *_logs(reported, look),
        *_steps(reported, look),
        _table(reported.comparison, look),
        identity(reported.comparison, look),
        alone(reported.comparison, reported.ledgers, look),
        _timelines(reported, look),
        closing(reported.comparison, look),
    ]
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [*section, Text()]
    return lines[:-1]


def _hanging(head: str, text: str, look: Look) -> list[Text]:
    """A text beside its head, its further lines indented below it."""
    parts = wrap(text, max(20, look.width - len(head)))
    return [Text((head if number == 0 else " " * len(head)) + part) for number, part in enumerate(parts)]


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _asked(comparison: Comparison, summaries: Mapping[str, str] | None, look: Look) -> list[Text]:
    requests = comparison.requests
    slots = {result.slots for result in comparison.modes.values()}
    what = _count(len(requests), "request")
    if len(slots) == 1:
        what += f", {_count(next(iter(slots)), 'slot')}"
    ways = len(comparison.modes)
    lines = [_heading(f"The same {what}, in {ways} ways" if ways > 1 else what)]
    for name in comparison.modes:
        summary = mode_named(name).summary if summaries is None else summaries[name]
        if len(slots) > 1:
            summary = f"{_count(comparison.modes[name].slots, 'slot')}, {summary}"
        lines += _hanging(f"  {name + ':':<19}", summary, look)
    exact = " exact" if comparison.exact else ""
    on = f"{comparison.model}, {comparison.device} {comparison.dtype}{exact}, greedy"
    lines.append(Text(on, style="dim"))
    for index, request in enumerate(requests[:REQUESTS_SHOWN]):
        line = Text(f"  {letter_of(index):<3}") if look.is_plain else Text(" ").append_text(badge(index))
        line.append(f"{request.prompt_tokens:>4} prompt tokens, {request.max_tokens:>4} to make: ")
        lines.append(line.append(look.quoted(request.prompt, look.width - line.cell_len)))
    if len(requests) > REQUESTS_SHOWN:
        lines.append(Text(f"  {look.ellipsis} and {len(requests) - REQUESTS_SHOWN:,} more", style="dim"))
    return lines


def _logs(reported: Reported, look: Look) -> list[list[Text]]:
    """Each mode's admission log; modes with the same one share it."""
    sections = []
    for modes in _alike(reported.records, _events):
        first = modes[0]
        lines = admission_log(reported.records[first], reported.ledgers[first], look)
        sections.append([_heading(f"Who entered and who ended: {listed(modes)}"), *lines])
    return sections


def _alike(
    records: Mapping[str, Sequence[Record]], key: Callable[[Sequence[Record]], object]
) -> list[list[str]]:
    """Modes grouped by what their records say, in order."""
    groups: list[tuple[object, list[str]]] = []
    for mode, run in records.items():
        said = key(run)
        for other, modes in groups:
            if other == said:
                modes.append(mode)
                break
        else:
            groups.append((said, [mode]))
    return [modes for _, modes in groups]


def _events(run: Sequence[Record]) -> object:
    """What the admission log is made of."""
    return [
        (record.step, event.admitted, event.preempted, ends, event.barrier)
        for record in run
        for event in [record.events]
        if (ends := [(end.request_id, end.reason) for end in event.finished]) or event.admitted
    ]


def _lanes(run: Sequence[Record]) -> object:
    """What a timeline is made of."""
    steps = [record for record in run if isinstance(record, StepRecord)]
    return [tuple((s.slot, s.request_id, s.kind) for s in step.segments) for step in steps]


def _steps(reported: Reported, look: Look) -> list[list[Text]]:
    """The telling steps of the last mode, which by default is the packed one."""
    mode = list(reported.records)[-1]
    ledger = reported.ledgers[mode]
    sections = []
    for record in telling_steps(reported.records[mode]):
        lines = [_heading(step_heading(record)), *draw_row(record, ledger, look), Text()]
        lines.append(mask_legend(record))
        for number in masks_of(record, reported.kinds):
            if layers := _layers(reported.kinds, number):
                lines.append(Text(layers, style="dim"))
            lines += draw_mask(record, ledger, look, reported.kinds[number].window)
        sections.append(lines)
    return sections


def _layers(kinds: Sequence[LayerKind], number: int) -> str:
    """Whose mask is drawn; empty where there is nothing to tell apart."""
    return "" if kinds == (LayerKind(layers=kinds[0].layers),) else layers_words(kinds, number)


def _table(comparison: Comparison, look: Look) -> list[Text]:
    results = comparison.modes
    label_cells = max(len(label) for label, _ in _ROWS)
    widths = [max(12, len(mode) + 2) for mode in results]
    if label_cells + sum(widths) > look.width:
        widths = [max(9, (look.width - label_cells) // len(results))] * len(results)
    head = Text(" " * label_cells)
    for mode, cells in zip(results, widths, strict=True):
        head.append(look.clip(mode, cells - 1).rjust(cells), "bold")
    rule = "-" if look.is_plain else "─"
    lines = [head, Text(rule * (label_cells + sum(widths)), style="dim")]
    for label, cell in _ROWS:
        if label in _WHERE_ANY and not any(map(_WHERE_ANY[label], results.values())):
            continue
        line = Text(label.ljust(label_cells))
        for result, cells in zip(results.values(), widths, strict=True):
            line.append(cell(result).rjust(cells))
        lines.append(line)
    return lines


def _streamed(pick: Callable[[Latency], float | None], digits: int) -> Callable[[ModeResult], str]:
    return lambda result: _figure(pick(result.streaming), digits)


def _at_barrier(pick: Callable[[Latency], float | None], digits: int) -> Callable[[ModeResult], str]:
    return lambda result: _figure(pick(result.at_barrier) if result.at_barrier else None, digits)


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


_ROWS: tuple[tuple[str, Callable[[ModeResult], str]], ...] = (
    ("steps", lambda r: f"{r.steps:,}"),
    ("output tokens", lambda r: f"{r.output_tokens:,}"),
    ("token positions through the model", lambda r: f"{r.token_positions:,}"),
    ("  of them padding", lambda r: f"{r.padding_tokens:,}"),
    ("  of them dead work", lambda r: f"{r.dead_tokens:,}"),
    ("  of them rejected drafts", lambda r: f"{r.rejected_tokens:,}"),
    ("drafts accepted / fed", lambda r: f"{r.accepted_drafts:,} / {r.drafts:,}"),
    ("preemptions / tokens fed again", lambda r: f"{r.preemptions} / {r.recomputed_tokens}"),
    ("prefix tokens reused", lambda r: f"{r.cached_tokens:,}"),
    ("slot occupancy", lambda r: f"{100 * r.slot_occupancy:.1f} %"),
    ("ms a step, median", lambda r: f"{r.step_ms_median:,.1f}"),
    ("seconds in all", lambda r: f"{r.elapsed_s:,.2f}"),
    ("output tokens/s", lambda r: f"{r.output_tokens_per_s:,.1f}"),
    ("mean TTFT, streamed, steps", _streamed(lambda x: x.ttft_steps, 1)),
    ("mean TTFT, streamed, s", _streamed(lambda x: x.ttft_s, 2)),
    ("mean completion, streamed, steps", _streamed(lambda x: x.completion_steps, 1)),
    ("mean completion, streamed, s", _streamed(lambda x: x.completion_s, 2)),
    ("  delivered at the barrier, steps", _at_barrier(lambda x: x.completion_steps, 1)),
    ("  delivered at the barrier, s", _at_barrier(lambda x: x.completion_s, 2)),
)
#: Rows that only stand where some run has what they are about.
_WHERE_ANY: dict[str, Callable[[ModeResult], object]] = {
    "  of them rejected drafts": lambda r: r.drafts,
    "drafts accepted / fed": lambda r: r.drafts,
    "preemptions / tokens fed again": lambda r: r.preemptions,
    "prefix tokens reused": lambda r: r.cached_tokens,
    "  delivered at the barrier, steps": lambda r: r.at_barrier,
    "  delivered at the barrier, s": lambda r: r.at_barrier,
}


def _timelines(reported: Reported, look: Look) -> list[Text]:
    """Every mode's slots on one scale; modes that did the same at every step share a drawing."""
    longest = max(result.steps for result in reported.comparison.modes.values())
    scale = steps_a_column(longest, min(look.width, 80) - _TIMELINE_INDENT)
    lines = [_heading(f"Timeline, {_count(scale, 'step')} a column"), legend(look)]
    for modes in _alike(reported.records, _lanes):
        steps = reported.comparison.modes[modes[0]].steps
        lines.append(Text(f"{listed(modes)}: {_count(steps, 'step')}"))
        lines += timeline(reported.records[modes[0]], reported.ledgers[modes[0]], scale, look)
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
