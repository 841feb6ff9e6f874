"""The drawn mask is the one the model attends with, in every layer, sliding windows included.

What a layer really looks at is taken from its attention itself: with the unit vectors as values, its output
is the weights, which are zero exactly where the softmax was told not to look.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cbtui.drawing.mask_zoom import Zoom, drawing_at
from cbtui.looks.pieces import plain
from cbtui.telling.naming import Badges
from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.step.mask import layer_kinds
from engine.stream.records import StepRecord
from engine.torch_runner import attention
from engine.torch_runner.step import Step
from tests.torch_runner.sequences import make_runner

#: Window of each of the two layers, by kind of model.
WINDOWS = {
    "llama": (None, None),
    "mistral": (5, 5),
    "phi3": (5, 5),
    "gemma2": (6, None),
    "gemma3": (6, None),
    "gpt_oss": (6, None),
    "qwen2_window": (6, None),
}
MODES = ("continuous", "continuous-padded", "static", "chunked")

#: Arena cells that a query of the step's tensor, by row and column, looks at.
Seen = dict[tuple[int, int], set[int]]


class Watcher:
    """Stands in for the fast route's attention and writes down what each layer looked at in the last step."""

    def __init__(self) -> None:
        self.layers: list[Seen] = []
        self.step: Step | None = None
        self._attend = attention.attend

    def __call__(self, step: Step, query: Any, key: Any, value: Any, window: Any, scores: Any) -> Any:
        if step is not self.step:
            self.step, self.layers = step, []
        heads, cells = key.shape[1], key.shape[2]
        units = torch.eye(cells, dtype=key.dtype).expand(1, heads, cells, cells)
        weights = self._attend(step, query, key, units, window, scores).amax(dim=2)
        self.layers.append(
            {
                (row, column): set(weights[row, column].nonzero().flatten().tolist())
                for row in range(weights.shape[0])
                for column in range(weights.shape[1])
            }
        )
        return self._attend(step, query, key, value, window, scores)


def drawn(record: StepRecord, badges: Badges, window: int | None, step: Step) -> Seen:
    """The cells that the screen draws as allowed."""
    drawing = drawing_at(Zoom.NARROW, record, badges, lambda segment: "", 80, 20, window)
    seen: Seen = {(row, q): set() for row in range(record.shape[0]) for q in range(record.shape[1])}
    for y in range(drawing.count):
        line = plain(drawing.line(y, 0, 10_000))
        for x in range(drawing.columns):
            area = drawing.area(y, x)
            if area is not None and line[x] in "█▒░◆":
                seen[area.row, area.query].add(int(step.key_cells[area.row, area.key]))
    return seen


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", WINDOWS)
def test_every_layer_looks_at_what_is_drawn(kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(kind)
    assert runner.info.facts.layer_windows == WINDOWS[kind]
    watcher = Watcher()
    monkeypatch.setattr(attention, "attend", watcher)
    config = EngineConfig(mode=mode, max_num_seqs=2, max_num_batched_tokens=16, num_blocks=40, block_size=4)
    engine = Engine(config, runner, runner.info)
    for number, (length, count) in enumerate(((11, 3), (2, 9), (9, 4))):
        prompt = [(7 * number + 3 * place) % 97 for place in range(length)]
        engine.add_request(prompt, SamplingParams(max_tokens=count, ignore_eos=True))
    badges = Badges()
    windows = [kind.window for kind in layer_kinds(runner.info.facts.layer_windows)]
    while engine.has_work:
        record = engine.step()
        assert record is not None and not record.failed and watcher.step is not None
        badges.apply(record)
        pictures = {window: drawn(record, badges, window, watcher.step) for window in windows}
        assert [pictures[window] for window in WINDOWS[kind]] == watcher.layers
    assert engine.step_number > 8


@pytest.mark.parametrize("kind", WINDOWS)
def test_facts_carry_every_layers_window(kind: str) -> None:
    facts = make_runner(kind).info.facts
    assert facts.layer_windows == WINDOWS[kind]
    assert facts.sliding_window == max(window or 0 for window in WINDOWS[kind])
