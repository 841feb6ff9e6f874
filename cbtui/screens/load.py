"""Asks for a load: rate, lengths, seed; and says what the engine can take. Values are checked as typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from cbtui.keys import LOAD_KEYS, bindings
from cbtui.screens.in_front import InFront
from engine.live.load import LoadError, LoadSpec

_RANGE = re.compile(r"\s*(\d+)\s*(?:(?:-|–|to|\.\.)\s*(\d+)\s*)?")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an engine can serve: so many slots at so many steps a second (None: not known yet)."""

    slots: int
    steps_per_s: float | None

    def requests_per_s(self, spec: LoadSpec) -> float | None:
        """Requests of a load's mean output length that it can complete in a second, every slot busy."""
        if self.steps_per_s is None:
            return None
        return self.slots * self.steps_per_s / (sum(spec.output_tokens) / 2)


@dataclass(frozen=True, slots=True)
class Field:
    """One value asked for."""

    id: str
    label: str
    unit: str


FIELDS = (
    Field("rate", "rate", "requests/s, Poisson"),
    Field("prompt", "prompts", "tokens, from-to"),
    Field("output", "outputs", "tokens, from-to"),
    Field("seed", "seed", "same seed, same load"),
)


def spec_of(texts: Mapping[str, str]) -> LoadSpec:
    """The load that was typed, by field.

    Raises:
        LoadError: why it is none, in a sentence.
    """
    try:
        rate = float(texts["rate"])
    except ValueError:
        raise LoadError("the rate must be a number, such as 1 or 0.5") from None
    if not re.fullmatch(r"\s*\d{1,9}\s*", texts["seed"]):
        raise LoadError("the seed must be a whole number")
    return LoadSpec(
        rate_per_s=rate,
        prompt_tokens=_range(texts["prompt"], "prompt"),
        output_tokens=_range(texts["output"], "output"),
        seed=int(texts["seed"]),
    )


def _range(text: str, name: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    if found is None or len(text) > 20:
        raise LoadError(f"{name} tokens must be a range such as 8-64")
    low, high = found.groups()
    return int(low), int(high or low)


def written(spec: LoadSpec) -> dict[str, str]:
    """The texts of the fields for a load."""
    return {
        "rate": f"{spec.rate_per_s:g}",
        "prompt": "{}-{}".format(*spec.prompt_tokens),
        "output": "{}-{}".format(*spec.output_tokens),
        "seed": str(spec.seed),
    }


def outlook(spec: LoadSpec, capacity: Capacity) -> str:
    """Whether the engine keeps up, and why."""
    served = capacity.requests_per_s(spec)
    slots = f"{capacity.slots} slot{'s' * (capacity.slots != 1)}"
    if served is None:
        return f"{slots}: past what they can complete in a second, the queue grows."
    mean = sum(spec.output_tokens) / 2
    text = (
        f"{slots} × {capacity.steps_per_s:.3g} steps/s ÷ {mean:g} output tokens: "
        f"at most {served:.2g} requests a second. "
    )
    if spec.rate_per_s > served:
        return f"{text}At {spec.rate_per_s:g} the queue will grow and grow."
    if spec.rate_per_s > 0.8 * served:
        return f"{text}At {spec.rate_per_s:g} it is close: chance alone makes a queue."
    return f"{text}At {spec.rate_per_s:g} it keeps up."


class LoadScreen(InFront[LoadSpec | None]):
    """Dismissed with the load to start, or None.

    Args:
        spec: what the fields begin with.
        capacity: of the engine now.
    """

    DEFAULT_CSS = """
    LoadScreen {
        align: center middle;
        background: $background 60%;
        & .box { width: 76; }
        & .load-line { height: 1; }
        & .load-label { width: 10; color: $foreground 75%; }
        & Input { width: 14; }
        & .load-unit { width: 1fr; margin: 0 0 0 2; color: $foreground 55%; }
        & #load-outlook { height: 3; margin: 1 0 0 0; }
        & #load-outlook.-error { color: $text-error; }
    }
    """
    KEYS = (*LOAD_KEYS, *InFront.KEYS)
    BINDINGS = bindings(LOAD_KEYS)

    def __init__(self, spec: LoadSpec, capacity: Capacity) -> None:
        super().__init__()
        self._spec = spec
        self._capacity = capacity

    def compose(self) -> ComposeResult:
        texts = written(self._spec)
        with Vertical(classes="box") as box:
            box.border_title = Content(" Load ")
            box.border_subtitle = Content(" Enter starts · Tab next field · Esc back ")
            for field in FIELDS:
                with Horizontal(classes="load-line"):
                    yield Static(Content(field.label), classes="load-label")
                    yield Input(
                        texts[field.id],
                        id=f"load-{field.id}",
                        compact=True,
                        select_on_focus=True,
                        max_length=20,
                    )
                    yield Static(Content(field.unit), classes="load-unit")
            yield Static(id="load-outlook", markup=False)

    def on_mount(self) -> None:
        self._check()

    def _texts(self) -> dict[str, str]:
        return {field.id: self.query_one(f"#load-{field.id}", Input).value for field in FIELDS}

    def _check(self) -> LoadSpec | None:
        line = self.query_one("#load-outlook", Static)
        try:
            spec = spec_of(self._texts())
        except LoadError as exc:
            line.add_class("-error")
            text = str(exc)
            line.update(Content(text[:1].upper() + text[1:] + "."))
            return None
        line.remove_class("-error")
        line.update(Content(outlook(spec, self._capacity)))
        return spec

    @on(Input.Changed)
    def _changed(self) -> None:
        self._check()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        spec = self._check()
        if spec is not None:
            self.dismiss(spec)
