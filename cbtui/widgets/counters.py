"""The counters: is it fast, and what is wasted? Names as in the vocabulary, each rate with its window.

`counter_lines` (a panel) and `counters_line` (one line, for smaller screens) are pure.
"""

from __future__ import annotations

from cbtui.drawing.server_figures import is_told_in_figures, llama_line, server_lines
from cbtui.following.frame import Frame
from cbtui.looks.bars import gauge, sparkline
from cbtui.looks.pieces import Line, clip_line, join
from cbtui.telling.provenance import is_absent
from cbtui.telling.words import EMPTY, count, percent, rate, seconds
from cbtui.widgets.lines import LinesView
from engine.stream.metrics import RATE_WINDOW_S, MetricsSnapshot

_WINDOW = f"({RATE_WINDOW_S:.0f} s)"
#: From this height on there is a line with a bar for each share.
TALL = 7
#: Cells a share's remark has; `of positions` fills them.
_NOTE_CELLS = 12


def _dimmed(lines: list[Line]) -> list[Line]:
    return [
        tuple((text, "dim" if style in ("", "strong", "accent") else style) for text, style in line)
        for line in lines
    ]


def _is_dim(frame: Frame) -> bool:
    """Rates stand still while nothing runs: their last value stays, dimmed."""
    return frame.state.status in ("paused", "idle", "failed", "loading")


def _speed(frame: Frame, cells: int) -> Line:
    metrics = frame.metrics
    left: Line = (
        (rate(metrics.output_tokens_per_s).rjust(7), "strong"),
        (" tok/s ", "dim"),
    )
    right: Line = (
        (rate(metrics.steps_per_s).rjust(6), "strong"),
        (" steps/s ", "dim"),
        (_WINDOW, "dim"),
    )
    room = cells - sum(len(t) for t, _ in (*left, *right))
    return (*left, (sparkline(metrics.throughput_history, min(30, room)), "bar"), *right)


def _share(name: str, share: float, remark: str, cells: int) -> Line:
    width = max(0, cells - 12 - 7 - 2 - _NOTE_CELLS)
    return (
        (" " + name.ljust(11), "dim"),
        *gauge(share, width),
        (percent(share).rjust(7), "strong"),
        ("  " + remark, "dim"),
    )


def _latency(frame: Frame) -> Line:
    metrics = frame.metrics
    return (
        (" TTFT p50 ", "dim"),
        (seconds(metrics.ttft_p50_s).ljust(6), "strong"),
        (" p95 ", "dim"),
        (seconds(metrics.ttft_p95_s).ljust(6), "strong"),
        ("  TPOT p50 ", "dim"),
        (seconds(metrics.tpot_p50_s), "strong"),
    )


def _gaps(frame: Frame) -> Line:
    metrics = frame.metrics
    return (
        (" ITL  p50 ", "dim"),
        (seconds(metrics.itl_p50_s).ljust(6), "strong"),
        (" p95 ", "dim"),
        (seconds(metrics.itl_p95_s).ljust(6), "strong"),
        ("  this step ", "dim"),
        (seconds(metrics.step_s if metrics.num_steps else None), "strong"),
    )


def _done(frame: Frame) -> Line:
    metrics = frame.metrics
    if frame.state.is_attached:
        spell = f"{count(metrics.num_output_tokens, 'token')} in {count(metrics.num_steps, 'step')}"
        done = f"{metrics.num_finished:,} of {metrics.num_requests:,}"
        # Two scopes: since it is followed, and since it had nothing to do.
        return ((" done ", "dim"), (done, "strong"), (f"  ·  since idle {spell}", "dim"))
    return (
        (" done ", "dim"),
        (f"{metrics.num_finished:,} of {metrics.num_requests:,}", "strong"),
        (f"  ·  {count(metrics.num_output_tokens, 'token')} in {count(metrics.num_steps, 'step')}", "dim"),
    )


def counter_lines(frame: Frame, cells: int, height: int) -> list[Line]:
    """The panel's lines for `cells` cells: bars where `height` allows, else figures alone."""
    metrics, source = frame.metrics, frame.state.provenance
    figures = dict(metrics.figures)
    if is_told_in_figures(figures):
        lines = [clip_line(line, cells) for line in server_lines(figures)]
        return _dimmed(lines) if frame.state.status == "failed" else lines
    if not metrics.num_requests:
        return [((" " + EMPTY["counters"], "dim"),)]
    record = frame.record
    step_tokens = f"{record.tokens.total:,} of {record.max_num_batched_tokens:,}" if record else ""
    if len(step_tokens) > _NOTE_CELLS:
        step_tokens = step_tokens.replace(" of ", "/")
    if height >= TALL:
        lines = [
            _speed(frame, cells),
            _share("occupancy", metrics.slot_occupancy, "slots used", cells),
            *(_share(name, share, of, cells) for name, share, of in _wasted(metrics)),
            *([] if is_absent(source, "budget") else [_fill(frame, step_tokens, cells)]),
            _cache(frame, cells),
            _latency(frame),
            _gaps(frame),
            _done(frame),
            *([line] if (line := llama_line(figures, cells)) else []),
        ]
        # Where not all fit, the least telling go first: batch fill, then the KV cache.
        while len(lines) > height and len(lines) > TALL:
            del lines[2 + len(_wasted(metrics))]
    else:
        lines = [_speed(frame, cells), *_short_shares(frame, step_tokens), _latency(frame), _done(frame)]
    lines = [clip_line(line, cells) for line in lines]
    return _dimmed(lines) if _is_dim(frame) else lines


def _figure(name: str, value: str) -> Line:
    return ((f"{name} ", "dim"), (value, "strong"))


def _fill(frame: Frame, step_tokens: str, cells: int) -> Line:
    return _share("batch fill", frame.metrics.batch_fill, step_tokens, cells)


def _cache(frame: Frame, cells: int) -> Line:
    tokens = count(frame.metrics.kv_tokens, "token")
    if is_absent(frame.state.provenance, "kv"):
        return ((" " + "KV cache".ljust(11), "dim"), (tokens, "strong"))
    return _share("KV cache", frame.metrics.kv_cache_usage, tokens, cells)


def _usage(frame: Frame) -> str:
    if is_absent(frame.state.provenance, "kv"):
        return count(frame.metrics.kv_tokens, "token")
    return percent(frame.metrics.kv_cache_usage)


def _wasted(metrics: MetricsSnapshot) -> list[tuple[str, float, str]]:
    """What goes to waste, each share with what it is of. Who drafts packs its row and never pads."""
    dead = ("dead work", metrics.dead_work, "of positions")
    if metrics.acceptance_rate is None:
        return [("padding", metrics.padding_waste, "of positions"), dead]
    accepted = ("accepted", metrics.acceptance_rate, "of drafts")
    return [("rejected", metrics.rejected_work, "of positions"), accepted, dead]


def _short_shares(frame: Frame, step_tokens: str) -> list[Line]:
    metrics = frame.metrics
    fill: list[Line] = [_figure("batch fill", percent(metrics.batch_fill)), ((step_tokens, "dim"),)]
    if is_absent(frame.state.provenance, "budget"):
        fill = []
    return [
        (
            (" ", ""),
            *join(
                (
                    _figure("occupancy", percent(metrics.slot_occupancy)),
                    *(
                        _figure(name.removesuffix(" work"), percent(share))
                        for name, share, _ in _wasted(metrics)
                    ),
                ),
                "   ",
            ),
        ),
        (
            (" ", ""),
            *join(
                (
                    *fill,
                    _figure("KV", count(metrics.kv_tokens, "token")),
                ),
                "   ",
            ),
        ),
    ]


def counters_line(frame: Frame, cells: int) -> Line:
    """The counters in one line; the last ones go first where it is narrow."""
    metrics = frame.metrics
    if is_told_in_figures(told := dict(metrics.figures)):
        said = clip_line(join(server_lines(told)[:2]), cells)
        return _dimmed([said])[0] if frame.state.status == "failed" else said
    if not metrics.num_requests:
        return clip_line(((" " + EMPTY["counters"], "dim"),), cells)
    figures: list[Line] = [
        ((rate(metrics.output_tokens_per_s).rjust(6), "strong"), (f" tok/s {_WINDOW}", "dim")),
        _figure("occupancy", percent(metrics.slot_occupancy)),
        *(_figure(name.removesuffix(" work"), percent(share)) for name, share, _ in _wasted(metrics)),
        _figure("done", f"{metrics.num_finished:,} of {metrics.num_requests:,}"),
        _figure("TTFT p95", seconds(metrics.ttft_p95_s)),
        _figure("TPOT", seconds(metrics.tpot_p50_s)),
        _figure("KV", _usage(frame)),
    ]
    line: Line = ()
    for figure in figures:
        longer = join((line, figure), "  ")
        if sum(len(text) for text, _ in longer) > cells:
            break
        line = longer
    return _dimmed([line])[0] if _is_dim(frame) else line


class Counters(LinesView):
    """The panel of counters."""

    BORDER_TITLE = "Counters"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        lines = counter_lines(frame, self.line_width, self.num_visible)
        self.draw(len(lines), lambda y, _: lines[y])

    def on_resize(self) -> None:
        """The lines depend on width and height."""
        super().on_resize()
        if self._frame is not None:
            self.show(self._frame)


class CountersLine(LinesView):
    """The counters in one line, for smaller screens."""

    DEFAULT_CSS = "CountersLine { height: 1; overflow-y: hidden; }"

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self.draw(1, lambda _, cells: counters_line(frame, cells))
