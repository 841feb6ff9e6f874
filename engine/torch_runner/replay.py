"""Replay: a model call's operations, recorded once for a shape and run again without the model's Python.

A decode step of a small model spends as long in the model's Python (modules, keyword handling, views)
as in everything but its matrix products. Steps of one shape do the same operations on other numbers, so
they are recorded the way a CUDA graph is: the tensors of the recorded run stay, inputs are copied into
them, and only what computes is run again, into the same places. Views cost nothing then.

    seen twice      recorded while it runs as usual
    seen thrice     run both ways on new inputs; equal, or never replayed
    from then on    replayed

What depends on more than the shape is not recorded but called: writing into the arena and attention,
which take everything from the step. A model whose call cannot be recorded (it looks at numbers, draws
some, or reads the cache by itself) runs as usual.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.torch_runner.arena import ArenaCache, KVArena
from engine.torch_runner.attention import attend
from engine.torch_runner.replay_memory import (
    Call,
    run_and_copy,
    share_memory,
    storage_of,
    take_results,
    tensors_in,
)
from engine.torch_runner.step import Step

#: Token positions up to which a step is recorded: with more of them Python no longer matters.
MOST_TOKENS = 64

#: Times a shape is run as usual before it is recorded.
RECORD_AFTER = 2

#: Steps of a shape until it is replayed: recorded after those, then tried once beside the usual way.
STEPS_TO_TRUST = RECORD_AFTER + 2

#: Bytes that recorded tensors may hold together; the longest unused recording goes first.
MOST_BYTES = 192 << 20

#: How far a replay may be off, relative to the largest logit. They are the same operations.
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2}

_COPIES = {"aten::to", "aten::_to_copy", "aten::clone", "aten::contiguous"}

Plain = Callable[[Step, ArenaCache], torch.Tensor]


class CannotRecord(Exception):
    """The model's call does something a replay could not repeat."""


class Replayer:
    """Runs steps on one model, by replay where that is possible.

    Args:
        plain: the model call, from a step and its cache to the sampled places' logits.
    """

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._seen: dict[Hashable, int] = {}
        self._recordings: OrderedDict[Hashable, Recording] = OrderedDict()
        self._refused: set[Hashable] = set()
        #: Why the last shape that could not be replayed could not; empty: none yet.
        self.reason = ""

    @property
    def num_replayed(self) -> int:
        """Shapes that are replayed now."""
        return sum(recording.trusted for recording in self._recordings.values())

    def logits(self, step: Step, arena: KVArena) -> torch.Tensor:
        """`[N, vocab]`, as the model itself gives them; overwritten by the next step of this shape."""
        shape = step.geometry.shape
        key = (shape, len(step.geometry.logits_indices))
        recording = self._recordings.get(key)
        if recording is not None:
            self._recordings.move_to_end(key)
            return self._replayed(key, recording, step, arena)
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen <= RECORD_AFTER or shape[0] * shape[1] > MOST_TOKENS or key in self._refused:
            return self._plain(step, ArenaCache(arena, step))
        recording = Recording(step, arena)
        try:
            logits = recording.record(self._plain)
        except CannotRecord as error:
            self._refuse(key, str(error))
            return self._plain(step, ArenaCache(arena, step))
        self._recordings[key] = recording
        self._make_room()
        return logits

    def _replayed(self, key: Hashable, recording: Recording, step: Step, arena: KVArena) -> torch.Tensor:
        if recording.trusted:
            return recording.replay(step, arena)
        expected = self._plain(step, ArenaCache(arena, step))
        try:
            got = recording.replay(step, arena)
        except Exception as error:  # an operator that wants other arguments; the step itself is fine
            self._refuse(key, f"a replay fails with {type(error).__name__}: {error}")
            return expected
        if not _is_close(got, expected):
            self._refuse(key, "a replay gives other logits")
        else:
            recording.trusted = True
        return expected

    def _refuse(self, key: Hashable, reason: str) -> None:
        self.reason = reason
        self._refused.add(key)
        self._recordings.pop(key, None)

    def _make_room(self) -> None:
        while sum(r.num_bytes for r in self._recordings.values()) > MOST_BYTES and len(self._recordings) > 1:
            key, _ = self._recordings.popitem(last=False)
            self._seen[key] = 0


class Recording(TorchDispatchMode):
    """The operations of one model call.

    Args:
        step, arena: what it is recorded on. The step's tensors become the recording's inputs.
    """

    def __init__(self, step: Step, arena: KVArena) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trusted = False
        self.num_bytes = 0
        self._inputs = (step.input_ids, step.position_ids, step.logits_to_keep)
        self._program: list[Call] = []
        self._current: tuple[Step, KVArena] | None = (step, arena)
        self._arena_storages = {storage_of(cells) for cells in (*arena.keys, *arena.values)}
        #: Storages the recorded operations fill: those of tensors that came before are constants.
        self._own_storages: set[int] = set()
        self._paused = False
        self._logits = step.input_ids

    def record(self, plain: Plain) -> torch.Tensor:
        """Run the model on the recording's step, as usual.

        Raises:
            CannotRecord: what it does cannot be replayed.
        """
        step, arena = self._on
        step.attend = self._attend_and_note
        try:
            with self:
                self._logits = plain(step, _RecordedCache(arena, step, self))
        finally:
            step.attend = None
            self._let_go()
        logits = self._logits.clone()
        self._program = take_results(self._program, self._own_storages, [self._logits])
        comes_anew = storage_of(self._logits) not in self._own_storages
        self.num_bytes = self._logits.untyped_storage().nbytes() if comes_anew else 0
        self.num_bytes += share_memory(self._program, self._own_storages, [self._logits])
        return logits

    def replay(self, step: Step, arena: KVArena) -> torch.Tensor:
        """The same operations on another step of the shape."""
        for kept, new in zip(
            self._inputs, (step.input_ids, step.position_ids, step.logits_to_keep), strict=True
        ):
            kept.copy_(new)
        self._current = (step, arena)
        try:
            for function, args, kwargs in self._program:
                function(*args, **kwargs)
        finally:
            self._let_go()
        return self._logits

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        if not self._paused:
            self._note(func, args, kwargs, outputs)
        return outputs

    @property
    def _on(self) -> tuple[Step, KVArena]:
        """The step and arena at hand, for the calls that are not recorded."""
        assert self._current is not None
        return self._current

    def _let_go(self) -> None:
        """An arena that is replaced must not live on here."""
        self._current = None

    def write(self, cache: ArenaCache, keys: torch.Tensor, values: torch.Tensor, layer: int) -> None:
        """Write into the arena as usual, and again at each replay."""
        self._paused = True
        try:
            cache.write(keys, values, layer)
        finally:
            self._paused = False
        self._program.append((self._write, (keys, values, layer), {}))

    def _write(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> None:
        step, arena = self._on
        ArenaCache(arena, step).write(keys, values, layer)

    def _attend_and_note(
        self, step: Step, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *how: Any
    ) -> torch.Tensor:
        _, arena = self._on
        layer = next((i for i, cells in enumerate(arena.keys) if storage_of(cells) == storage_of(key)), None)
        if layer is None or storage_of(value) != storage_of(arena.values[layer]):
            raise CannotRecord("the model changes keys between cache and attention")
        self._paused = True
        try:
            output = attend(step, query, key, value, *how)
        finally:
            self._paused = False
        self._own(output)
        self._program.append((self._attend, (output, query, layer, *how), {}))
        return output

    def _attend(self, output: torch.Tensor, query: torch.Tensor, layer: int, *how: Any) -> None:
        step, arena = self._on
        key, value = arena.keys[layer].unsqueeze(0), arena.values[layer].unsqueeze(0)
        output.copy_(attend(step, query, key, value, *how))

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        read = {storage_of(tensor) for tensor in tensors_in((args, kwargs))}
        made = list(tensors_in(outputs))
        is_mutable, tags = func._schema.is_mutable, func.tags
        if made and not is_mutable and all(storage_of(tensor) in read for tensor in made):
            return  # a view, or nothing (dropout that is off): it stays as it is
        looks = torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
        looks = looks or isinstance(outputs, bool | int | float | complex)
        if looks and not self._has_fixed_shape(func, args):
            raise CannotRecord(f"the model looks at numbers ({func})")
        if torch.Tag.nondeterministic_seeded in tags:
            raise CannotRecord(f"the model draws random numbers ({func})")
        if read & self._arena_storages:
            raise CannotRecord(f"the model reads the cache by itself ({func})")
        if is_mutable:
            changed = {storage_of(tensor) for tensor in made}
            if not changed <= self._own_storages and func is not torch.ops.aten.detach_.default:
                raise CannotRecord(f"the model changes a tensor in place ({func})")
            self._program.append((func, args, kwargs))
        elif not made:
            return  # asks for a type, a size
        elif len(made) == 1:
            self._own(made[0])
            self._program.append(_into(func, args, kwargs, made[0]))
        else:
            raise CannotRecord(f"an operation makes several tensors ({func})")

    def _has_fixed_shape(self, func: Any, args: tuple[Any, ...]) -> bool:
        """An index by numbers, or by the mask of sampled places: that has as many in every such step."""
        if func is not torch.ops.aten.index.Tensor:
            return False
        masks = [tensor for tensor in tensors_in(args[1]) if tensor.dtype == torch.bool]
        return all(storage_of(mask) == storage_of(self._inputs[2]) for mask in masks)

    def _own(self, tensor: torch.Tensor) -> None:
        self._own_storages.add(storage_of(tensor))


class _RecordedCache(ArenaCache):
    """Tells the recording what is written."""

    def __init__(self, arena: KVArena, step: Step, recording: Recording) -> None:
        super().__init__(arena, step)
        self._recording = recording

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._recording.write(self, key_states, value_states, layer_idx)
        return self.arena.keys[layer_idx].unsqueeze(0), self.arena.values[layer_idx].unsqueeze(0)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        raise CannotRecord("the model builds a mask by itself")


def _into(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor) -> Call:
    """An operation that fills the tensor it made the first time, without making another if it can."""
    name = func._schema.name
    if name in _COPIES:
        return torch.Tensor.copy_, (output, args[0]), {}
    filling = _filling_overload(func)
    if filling is not None:
        return filling, args, kwargs | {"out": output}

    return run_and_copy, (func, output, args, kwargs), {}


def _filling_overload(func: Any) -> Any:
    """The overload that takes the same arguments and `out`; None: there is none."""
    wanted = [(argument.name, str(argument.type)) for argument in func._schema.arguments]
    packet = func._overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = overload._schema.arguments
        takes = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        if len(takes) == len(arguments) - 1 and arguments[-1].name == "out" and takes == wanted:
            return overload
    return None


def _is_close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    if not expected.numel():
        return True
    off = (got - expected).abs().max()
    return bool(off <= _TOLERANCE.get(expected.dtype, 1e-2) * expected.abs().max())
