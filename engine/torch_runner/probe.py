"""The behavioural probe: a mixed step held against each sequence run alone, before a user's prompt is.

Static rules miss models that are silently wrong when sequences share a tensor. So at load three random
sequences are run through the model's own plain forward, one by one, and through steps as the engine
makes them: a decode beside a whole prefill beside the second piece of a cut one, on scattered blocks,
ragged and padded. The logits must agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.request import SamplingParams
from engine.runner import ModelLoadError
from engine.step.geometry import ArenaShape
from engine.step.plan import Layout, Plan, PlanRow
from engine.torch_runner.arena import KVArena, LayerShape
from engine.torch_runner.attention import UnsupportedAttention
from engine.torch_runner.checks import window_of_layer
from engine.torch_runner.exact import ExactStep
from engine.torch_runner.forward import CausalModel, Route
from engine.torch_runner.step import Step

#: Relative distance of two rows of logits (L2 over the spread) up to which they count as the same. In
#: float64 it is that of float32 sums, since transformers computes norms and softmax in float32 anyway.
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}

_ARENA = ArenaShape(num_blocks=9, block_size=4, num_slots=3)
#: Length, length after the first step, block table: scattered and interleaved on purpose.
_SEQUENCES = ((8, 7, [5, 2, 1]), (6, 0, [0, 7, 4]), (7, 3, [3, 6, 8]))


@dataclass(frozen=True)
class Findings:
    """What the probe learned.

    Attributes:
        route: the route to run on: the wanted one, or the reference route if the fast one is not right.
        layers: what a token leaves in each layer's cache.
        vocab_size: number of logits.
        largest_difference: of a logit, between mixed steps on that route and each sequence alone.
        fallback_reason: why the fast route was not taken; empty if it was, or was not wanted.
    """

    route: Route
    layers: list[LayerShape]
    vocab_size: int
    largest_difference: float
    fallback_reason: str = ""


def probe(model: CausalModel, wanted: Route) -> Findings:
    """Find out how a model can be run; leaves it set to the route found.

    Raises:
        ModelLoadError: on no route does a mixed step give what each sequence gives alone.
    """
    tokens = _random_sequences(model)
    alone, layers = _run_alone(model, tokens)
    vocab_size = alone[0].shape[-1]
    routes: list[Route] = ["fast", "reference"] if wanted == "fast" else ["reference"]
    reasons: list[str] = []
    for route in routes:
        try:
            difference = _try_route(model, route, layers, tokens, alone)
        except UnsupportedAttention as unsupported:
            reasons.append(str(unsupported))
        else:
            return Findings(route, layers, vocab_size, difference, "; ".join(reasons))
    raise ModelLoadError(
        f"{type(model.model).__name__} cannot run several sequences in one step: {reasons[-1]}",
        stage="probe",
        hint="choose another model with --model",
    )


def probe_exact(model: CausalModel, layers: list[LayerShape]) -> None:
    """Make sure that exact mode holds for a model on this machine: not a bit differs.

    Each sequence goes through two steps and three decodes, alone and beside the others, ragged and padded.

    Raises:
        ModelLoadError: a logit differs; not every product or sum of this model is in our hands.
    """
    tokens = [sequence + sequence[:3] for sequence in _random_sequences(model)]
    steps = [_first_step(tokens), *[_mixed_rows(tokens, more) for more in range(4)]]
    alone = [_logits_of(model, layers, steps, "ragged", only=slot) for slot in range(len(tokens))]
    layouts: tuple[Layout, ...] = ("ragged", "padded")
    for layout in layouts:
        together = _logits_of(model, layers, steps, layout)
        if any(not torch.equal(together[place], own[place]) for own in alone for place in own):
            raise ModelLoadError(
                f"exact mode cannot be had with {type(model.model).__name__} on this machine: {layout} "
                "logits differ in their last bits from those of each sequence alone",
                stage="exact",
                hint="leave --exact out",
            )


def _logits_of(
    model: CausalModel,
    layers: list[LayerShape],
    steps: list[list[PlanRow]],
    layout: Layout,
    only: int | None = None,
) -> dict[tuple[int, int], torch.Tensor]:
    """Sampled logits by step and slot, of all rows or of one slot's, on an arena of their own."""
    arena = KVArena(_ARENA, layers, model.dtype, model.device)
    logits: dict[tuple[int, int], torch.Tensor] = {}
    for number, rows in enumerate(steps):
        chosen = [row for row in rows if only in (None, row.slot)]
        if not chosen:
            continue
        plan = Plan(epoch=0, arena_id=0, step=number, layout=layout, rows=chosen)
        output = model.logits(ExactStep(plan, _ARENA, model.device, model.dtype), arena, "fast")
        slots = [row.slot for row in chosen if row.sampling is not None]
        logits |= {(number, slot): row for slot, row in zip(slots, output, strict=True)}
    return logits


def _random_sequences(model: CausalModel) -> list[list[int]]:
    vocab_size = int(model.model.config.get_text_config(decoder=True).vocab_size)
    generator = torch.Generator().manual_seed(0)
    lengths = [length for length, _, _ in _SEQUENCES]
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in lengths]


def _run_alone(model: CausalModel, tokens: list[list[int]]) -> tuple[list[torch.Tensor], list[LayerShape]]:
    """The last logits of each sequence alone, and what its cache holds a layer."""
    name = type(model.model).__name__
    logits, layers = [], []
    try:
        for sequence in tokens:
            output = model.alone(sequence)
            logits.append(output.logits[0, -1])
            if not torch.isfinite(logits[-1]).all():
                raise ModelLoadError(
                    f"{name} gives logits that are not finite (NaN or infinity) in "
                    f"{str(model.dtype).removeprefix('torch.')}",
                    stage="probe",
                    hint="use --dtype float32, or fetch the weights again",
                )
            layers = _layer_shapes(model, output, name)
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(
            f"{name} fails on a plain prompt: {_first_line(error)}", stage="probe"
        ) from error
    return logits, layers


def _layer_shapes(model: CausalModel, output: object, name: str) -> list[LayerShape]:
    shapes = []
    for layer in getattr(model.cache_of(output), "layers", None) or ():
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if not isinstance(keys, torch.Tensor) or not isinstance(values, torch.Tensor) or keys.ndim != 4:
            break
        shapes.append(LayerShape(keys.shape[1], keys.shape[3], values.shape[1], values.shape[3]))
    else:
        if shapes:
            return shapes
    raise ModelLoadError(f"{name} does not keep its state as keys and values in a cache", stage="probe")


def _try_route(
    model: CausalModel,
    route: Route,
    layers: list[LayerShape],
    tokens: list[list[int]],
    alone: list[torch.Tensor],
) -> float:
    """Hold a route against each sequence alone.

    Returns:
        the largest difference of a logit.

    Raises:
        UnsupportedAttention: it is not right for the model; says why.
    """
    try:
        model.use(route)
    except ValueError as error:
        raise UnsupportedAttention(_first_line(error)) from error
    largest = 0.0
    arena = KVArena(_ARENA, layers, model.dtype, model.device)
    try:
        first, mixed = _first_step(tokens), _mixed_rows(tokens)
        model.logits(_step(model, first, "ragged"), arena, route)
        layouts: tuple[Layout, ...] = ("ragged", "padded")
        for layout in layouts:
            step = _step(model, mixed, layout)
            together = model.logits(step, arena, route)
            distance = max(_distance(a, b) for a, b in zip(together, alone, strict=True))
            if not distance <= _TOLERANCE[model.dtype]:
                raise UnsupportedAttention(
                    f"on random prompts the {layout} logits differ from those of each sequence alone "
                    f"(by {distance:.1e} of their spread)"
                )
            if route == "fast" and (reason := _window_mismatch(model, step)):
                raise UnsupportedAttention(reason)
            largest = max(
                largest, *(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True))
            )
    except (torch.OutOfMemoryError, MemoryError, UnsupportedAttention):
        raise
    except Exception as error:
        raise UnsupportedAttention(
            f"a mixed step fails with {type(error).__name__}: {_first_line(error)}"
        ) from error
    return largest


def _window_mismatch(model: CausalModel, step: Step) -> str:
    """Short prompts do not reach a sliding window, so what the layers asked for is compared to the config."""
    for layer, seen in step.windows_seen.items():
        expected = window_of_layer(model.model, layer)
        if seen != expected:
            return f"layer {layer} asks for a sliding window of {seen}, its config says {expected}"
    return ""


def _step(model: CausalModel, rows: list[PlanRow], layout: Layout) -> Step:
    plan = Plan(epoch=0, arena_id=0, step=0, layout=layout, rows=rows)
    return Step(plan, _ARENA, model.device, model.dtype)


def _first_step(tokens: list[list[int]]) -> list[PlanRow]:
    return [
        _row(slot, sequence[:done], 0, blocks, None)
        for slot, (sequence, (_, done, blocks)) in enumerate(zip(tokens, _SEQUENCES, strict=True))
        if done
    ]


def _mixed_rows(tokens: list[list[int]], more: int = 0) -> list[PlanRow]:
    """The rest of each sequence; with `more`, the one token that comes so many places later."""
    rows = []
    for slot, (length, done, blocks) in enumerate(_SEQUENCES):
        start = length + more - 1 if more else done
        rows.append(_row(slot, tokens[slot][start : length + more], start, blocks, SamplingParams()))
    return rows


def _row(
    slot: int, tokens: list[int], start: int, blocks: list[int], sampling: SamplingParams | None
) -> PlanRow:
    return PlanRow(
        request_id=f"probe {slot}",
        slot=slot,
        kind="decode" if len(tokens) == 1 else "prefill",
        token_ids=tokens,
        start_position=start,
        kv_len=start + len(tokens),
        block_ids=blocks,
        sampling=sampling,
    )


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Distance of two rows of logits over the spread of the second; NaN stays NaN."""
    precise = torch.promote_types(b.dtype, torch.float32)
    a, b = a.to(precise), b.to(precise)
    spread = (b - b.mean()).norm().clamp_min(torch.finfo(precise).tiny)
    return float((a - b).norm() / spread)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
