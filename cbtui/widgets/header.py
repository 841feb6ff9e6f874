"""The header: what runs, in which mode, whether engine and view stand still, and at which step.

Mode, engine state, step and view are never dropped; of the rest the model's name goes first. Pure in
`header_line`.
"""

from __future__ import annotations

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, Piece, clip_line, join, line_width
from cbtui.telling.provenance import is_absent
from cbtui.telling.words import count, size
from cbtui.widgets.lines import LinesView
from engine.live.state import EngineState
from engine.runner import Loading

#: A shape a mode, so that it can be told from the corner of the eye and without colour.
_SHAPES = {"continuous": "●", "continuous-padded": "◧", "static": "■"}
_SHORT = {"continuous": "contin.", "continuous-padded": "c-padded"}


def _mode_versions(frame: Frame) -> list[Line]:
    """The mode from its fullest wording to its shortest."""
    state = frame.state
    if frame.record is None and is_absent(state.provenance, "mode"):
        return [()]
    mode = frame.record.mode if frame.record is not None and not frame.is_live else state.mode
    shape = _SHAPES.get(mode, "◆")
    pending, draining = (state.pending_mode, state.draining) if frame.is_live else (None, 0)
    if pending is None and draining:
        # Static is in force already, but a wave of its own waits for the running requests.
        before = _mode_before(frame)
        mode, pending = before or mode, mode
        shape = _SHAPES.get(mode, "◆")
    if pending is None:
        return [((f"{shape} {mode.upper()}", "accent"),), ((f"{shape} {_SHORT.get(mode, mode)}", "accent"),)]
    left = f" when {draining} {'has' if draining == 1 else 'have'} ended" if draining else ""
    short = f", {draining} to end" if draining else ""
    return [
        ((f"{shape} {mode} → {pending}{left}", "accent"),),
        ((f"{shape} {_SHORT.get(mode, mode)} → {_SHORT.get(pending, pending)}{short}", "accent"),),
        ((f"→ {_SHORT.get(pending, pending)}{f' ({draining})' if draining else ''}", "accent"),),
    ]


def _mode_before(frame: Frame) -> str:
    """The mode before the last switch; it lies at most as far back as the draining lasts."""
    for record in reversed(frame.records):
        for change in record.events.changed:
            if change.name == "mode":
                return change.before
    return ""


def loading_words(loading: Loading | None) -> str:
    """`fetching model 41/93 MB → convert (about 15 s, once)`."""
    if loading is None:
        return "loading model"
    words = loading.stage
    if loading.total or loading.done:
        words += " " + size(loading.done, loading.total, loading.unit)
    return f"{words} → {loading.then}" if loading.then else words


def _status_versions(frame: Frame) -> list[Line]:
    state = frame.state
    if state.stuck:
        return [((text, "warn"),) for text in ("✗ stuck (see below)", "✗ stuck")]
    if state.status == "loading":
        loading = state.loading
        words = loading_words(loading)
        short = "loading"
        if loading and loading.total:
            short += f" {100 * loading.done // loading.total} %"
        sign = "‖ paused · ◌ " if state.paused else "◌ "
        return [((sign + text, "warn"),) for text in (words, words.partition(" → ")[0], short)]
    if state.failure is not None and state.failure.retry_s is not None:
        words = "server lost" if state.model else "no server to follow yet"
        return [((text, "warn"),) for text in (f"✗ {words} (see below)", f"✗ {words}", "✗ lost")]
    if state.status == "failed":
        stage = f": {state.failure.stage}" if state.failure and state.failure.stage else ""
        return [
            ((text, "warn"),) for text in (f"✗ failed{stage} (see below)", f"✗ failed{stage}", "✗ failed")
        ]
    if state.status == "running" and state.until:
        return [(("▶ until " + state.until, "strong"),), (("▶ running", "strong"),)]
    words, style = {
        "running": ("▶ running", "strong"),
        "paused": ("‖ paused", "warn"),
        "idle": ("○ idle", ""),
        "closed": ("closed", "dim"),
    }[state.status]
    return [((words, style),)]


def speed_words(speed: float | None) -> str:
    """The speed limit: `≤ 8 steps/s`, or `full speed`."""
    return "full speed" if speed is None else f"≤ {speed:g} steps/s"


def _view_versions(frame: Frame) -> list[Line]:
    state, step = frame.state, frame.record.step if frame.record else 0
    if frame.is_live:
        return [((f"step {state.step:,}", "strong"), (words, style)) for words, style in _where(state)]
    newest = f"{state.step:,}"
    return [((f"step {step:,} of {newest}", "warn"),), ((f"step {step}/{state.step}", "warn"),)]


def _where(state: EngineState) -> list[Piece]:
    """How the newest step that is shown stands to the newest there is, from the fullest wording on."""
    if state.is_recording:
        end = f" of {state.newest_step:,}" if state.is_all_read else " of a recording"
        return [(end, "")]
    if held := state.num_held_back:
        return [(f"  {held:,} later ones held back", "warn"), (f"  +{held:,} held back", "warn")]
    return [("  last seen", "warn")] if state.is_out_of_sight else [("  live", "")]


def _about(frame: Frame) -> list[Line]:
    """What is said about the engine, from all to nothing."""
    state = frame.state
    config = state.config
    brand: Line = ((" cbtui ", "brand"),)
    wanted = frame.state.pending_config if frame.is_live else None
    slots = _slots(frame)
    limits = slots
    if state.is_attached and state.model is None:
        slots = limits = ""  # nobody has answered yet
    elif state.provenance is None or not state.provenance.why_absent("budget"):
        budget = _changing(config.max_num_batched_tokens, wanted.max_num_batched_tokens if wanted else None)
        limits += f" · budget {budget}"
    if state.model is None:
        parts = [("", limits)]
    else:
        place = f"{state.model.device} {state.model.dtype}".strip() + (" exact" if state.model.exact else "")
        if state.provenance is not None:
            whose = state.provenance
            place = " · ".join(part for part in (whose.engine, whose.address, place) if part)
        place += " · recorded" if state.is_recording else ""
        parts = [(state.model.name, f" · {place} · {limits}"), ("", f"{place} · {limits}"), ("", limits)]
    versions: list[Line] = [join((brand, ((name, ""), (rest, "dim")))) for name, rest in parts]
    return [*versions, join((brand, ((slots, "dim"),))), brand, ()] if limits else [brand, ()]


def _slots(frame: Frame) -> str:
    """`3 slots`; where a server does not tell their number, how many were seen to be used."""
    now, wanted = frame.state.config, frame.state.pending_config if frame.is_live else None
    if frame.state.provenance is not None and frame.state.provenance.why_absent("slots"):
        return f"{count(now.max_num_seqs, 'slot')} seen"
    return _changing(now.max_num_seqs, wanted.max_num_seqs if wanted else None) + " slots"


def _changing(now: int, wanted: int | None) -> str:
    """A limit, and what it will be from the next step on: `3 → 4`."""
    return f"{now:,}" if wanted is None or wanted == now else f"{now:,} → {wanted:,}"


def header_line(frame: Frame, cells: int) -> Line:
    """The header in `cells` cells."""
    speed: Line = ((speed_words(frame.state.speed), "dim"),)
    if frame.state.load is not None:
        load = f"load {frame.state.load.spec.rate_per_s:g}/s, {frame.state.load.num_arrived:,} came"
        speed = (*speed, ("   ", ""), (load, "warn"))
    if frame.state.status in ("loading", "failed") or frame.state.stuck or frame.state.is_attached:
        speed = ()  # a server keeps its own pace
    modes, statuses, views = _mode_versions(frame), _status_versions(frame), _view_versions(frame)
    abouts = _about(frame)

    def put(about: Line, mode: Line, status: Line, pace: Line, view: Line, gap: str) -> Line:
        return join((about, mode, status, pace, view), gap)

    # Loading and failing are told in full before the model's particulars.
    choices = [
        put(about, modes[0], status, speed, views[0], gap)
        for status in statuses[:2]
        for about in abouts
        for gap in ("   ", "  ")
        if about or status is statuses[0]
    ]
    choices += [put((), modes[0], status, speed, views[0], "  ") for status in statuses]
    choices += [put((), mode, statuses[-1], (), view, "  ") for mode in modes for view in views]
    for line in choices:
        if line_width(line) <= cells:
            return line
    return clip_line(choices[-1], cells)


class Header(LinesView):
    """The screen's first line."""

    COMPONENT_CLASSES = {"lines--brand"}
    DEFAULT_CSS = """
    Header {
        height: 1;
        overflow-y: hidden;
        background: $panel;
        & > .lines--brand { background: $accent; color: auto 95%; text-style: bold; }
    }
    """

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self.draw(1, lambda _, cells: header_line(frame, cells))
