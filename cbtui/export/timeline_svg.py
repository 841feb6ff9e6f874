"""The timeline as one SVG picture, in light or dark as the reader prefers: a line a slot, steps side by side.

Each stretch says itself who it belongs to when the mouse rests on it. The picture loads nothing, and texts
in it are escaped: prompts are data.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from textual.theme import Theme

from cbtui.drawing.timeline import stride
from cbtui.export.run import RecordedRun, Stretch
from cbtui.looks.colours import shape_colour, text_on
from cbtui.looks.theme import CBTUI_DARK, CBTUI_LIGHT
from cbtui.looks.tokens import clip, prose
from cbtui.telling.naming import PALETTE
from cbtui.telling.words import count

WIDTH = 1200
_GUTTER, _RIGHT = 56, 24
_TOP, _LANE, _GAP = 86, 24, 5
#: What is narrower than this would not be seen.
_NARROWEST = 1.5
_PROMPT_SHOWN = 100


def timeline_svg(run: RecordedRun) -> str:
    """The picture."""
    return _Picture(run).text()


class _Picture:
    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._count = len(run.steps)
        self._bottom = _TOP + run.num_slots * (_LANE + _GAP)

    def _x(self, place: int) -> float:
        """Where the step at that place begins."""
        return _GUTTER + place * (WIDTH - _GUTTER - _RIGHT) / self._count

    def _y(self, slot: int) -> int:
        return _TOP + slot * (_LANE + _GAP)

    def text(self) -> str:
        height = self._bottom + 58
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-labelledby="title">',
            f'<title id="title">{_text(self._title())}</title>',
            f"<style>{_style()}</style>",
            _PATTERN,
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="10"/>',
            f'<text class="name" x="24" y="32">{_text(self._title())}</text>',
            f'<text class="quiet" x="24" y="52">{_text(self._subtitle())}</text>',
            *self._lanes(),
            *self._stretches(),
            *self._marks(),
            *self._axis(),
            *self._legend(height - 18),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _title(self) -> str:
        modes = ", then ".join(self._run.modes)
        return f"{modes}: {count(self._count, 'step')}, {count(len(self._run.ledger.stories), 'request')}"

    def _subtitle(self) -> str:
        header = self._run.header
        seconds = sum(step.end_s - step.start_s for step in self._run.steps)
        words = [header.model, header.device, header.dtype, f"{seconds:,.2f} s of engine time"]
        return " · ".join(word for word in words if word)

    def _lanes(self) -> Iterator[str]:
        width = WIDTH - _RIGHT - _GUTTER
        for slot in range(self._run.num_slots):
            y = self._y(slot)
            yield (
                f'<text class="quiet end" x="{_GUTTER - 10}" y="{y + 16}">{slot}</text>'
                f'<rect class="idle" x="{_GUTTER}" y="{y}" width="{width}" height="{_LANE}" rx="3"/>'
            )

    def _stretches(self) -> Iterator[str]:
        """The bars, then the letters over them: a badge may be wider than its prefill."""
        stays = groupby(self._run.stretches(), key=lambda one: (one.slot, one.request_id))
        letters: list[str] = []
        for _, stay in stays:
            stretches = list(stay)
            for stretch in stretches:
                yield self._bar(stretch)
            letters += self._letter(stretches[0], stretches[-1].last)
        yield from letters

    def _bar(self, stretch: Stretch) -> str:
        x, y = self._x(stretch.first), self._y(stretch.slot)
        width = max(_NARROWEST, self._x(stretch.last + 1) - x)
        box = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_LANE}"'
        hatch = f'<rect class="hatch" {box}/>' if stretch.kind == "dead" else ""
        fill = f"r{self._colour(stretch)} {stretch.kind}"
        return f'<g><title>{_text(self._words(stretch))}</title><rect class="{fill}" {box}/>{hatch}</g>'

    def _letter(self, stretch: Stretch, last: int) -> Iterator[str]:
        """A badge where a request enters, if it stays long enough to be named."""
        letter = self._run.badge(stretch.request_id).letter
        width = 9 * len(letter) + 8
        if self._x(last + 1) - self._x(stretch.first) < width:
            return
        x, y, number = self._x(stretch.first), self._y(stretch.slot), self._colour(stretch)
        yield f'<rect class="r{number}" x="{x:.2f}" y="{y}" width="{width}" height="{_LANE}"/>'
        yield f'<text class="letter i{number}" x="{x + width / 2:.2f}" y="{y + 17}">{letter}</text>'

    def _colour(self, stretch: Stretch) -> int:
        return PALETTE.index(self._run.badge(stretch.request_id).colour)

    def _words(self, stretch: Stretch) -> str:
        first, last = (self._run.steps[place].step for place in (stretch.first, stretch.last))
        steps = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
        prompt = clip(prose(self._run.ledger[stretch.request_id].request.prompt_text), _PROMPT_SHOWN)
        letter = self._run.badge(stretch.request_id).letter
        return f"{letter} {stretch.kind}, slot {stretch.slot}, {steps}: {prompt}"

    def _marks(self) -> Iterator[str]:
        """Where a mode began and where a wave ended, above the lanes."""
        free_from = 0.0
        for mark in self._run.marks():
            is_mode = mark.kind == "mode"
            x = self._x(mark.place + (0 if is_mode else 1))
            yield f'<line class="{mark.kind}" x1="{x:.2f}" x2="{x:.2f}" y1="{_TOP - 8}" y2="{self._bottom}"/>'
            if x >= free_from:
                anchor, beside = ("", 4) if is_mode else (' class="end"', -4)
                yield f'<text{anchor} x="{x + beside:.2f}" y="{_TOP - 10}">{_text(mark.text)}</text>'
                free_from = x + 8 * len(mark.text) + 16

    def _axis(self) -> Iterator[str]:
        last = self._count - 1
        gap = stride(1, max(1, round(self._count / 12)))
        y = self._bottom + 14
        ticks = [
            place
            for place, step in enumerate(self._run.steps)
            if step.step % gap == 0 and place and last - place > gap / 2
        ]
        for place in [0, *ticks, *([last] if last else [])]:
            x = (self._x(place) + self._x(place + 1)) / 2
            yield f'<text class="quiet middle" x="{x:.2f}" y="{y}">{self._run.steps[place].step:,}</text>'

    def _legend(self, y: int) -> Iterator[str]:
        x = _GUTTER
        for kind, words in (
            ("prefill", "prefill"),
            ("decode", "decode"),
            ("dead", "dead: ended, slot held"),
            ("idle", "idle"),
        ):
            colour = "" if kind == "idle" else "r1 "
            box = f'x="{x}" y="{y - 11}" width="22" height="13"'
            yield f'<rect class="{colour}{kind}" {box} rx="2"/>'
            if kind == "dead":
                yield f'<rect class="hatch" {box} rx="2"/>'
            yield f'<text class="quiet" x="{x + 30}" y="{y}">{words}</text>'
            x += 60 + 7 * len(words)


#: Stripes over dead work.
_PATTERN = (
    '<defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect class="stripe" width="2.5" height="6"/></pattern></defs>'
)


def _style() -> str:
    """Light by default; dark where the reader prefers it. No CSS variables: drawing programs know none."""
    rules = [
        "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}",
        ".name{font-weight:600;font-size:16px}",
        "text.quiet{font-size:12px}",
        ".end{text-anchor:end}.middle,.letter{text-anchor:middle}",
        "text.letter{font-weight:700}",
        ".decode{opacity:.62}.dead{opacity:.3}",
        ".hatch{fill:url(#stripes)}.stripe{opacity:.75}",
        ".barrier{stroke-dasharray:3 3}",
        _colours(CBTUI_LIGHT),
        f"@media (prefers-color-scheme:dark){{{_colours(CBTUI_DARK)}}}",
    ]
    return "".join(rules)


def _colours(theme: Theme) -> str:
    """What depends on the theme."""
    ground = theme.background or ""
    shades = [shape_colour(colour, ground) for colour in PALETTE]
    requests = "".join(f".r{n}{{fill:{c}}}text.i{n}{{fill:{text_on(c)}}}" for n, c in enumerate(shades))
    return (
        f".ground,.stripe{{fill:{ground}}}.idle{{fill:{theme.panel}}}"
        f"text{{fill:{theme.foreground}}}text.quiet{{fill:{theme.secondary}}}"
        f".mode{{stroke:{theme.foreground}}}.barrier{{stroke:{theme.secondary}}}"
        f"{requests}"
    )


def _text(text: str) -> str:
    """A text made harmless: no markup, no control characters (XML knows none)."""
    return escape(prose(text))
