"""Where a recording's tensors lie: those that are never needed at the same time share memory.

A recorded run leaves every layer its own intermediate tensors. Written again in the next step they are
cold: the weights have passed through the caches since. Laid over each other they stay a few hundred
kilobytes that the processor keeps near. This is the buffer reuse of compilers, by lifetimes, first fit.

Knows a program as calls on tensors; nothing of what they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

#: Bytes a tensor begins at a multiple of: a cache line, and what vector instructions like.
ALIGNMENT = 64


@dataclass(slots=True)
class _Life:
    """A storage's tensors, and the first and the last call that touches it."""

    num_bytes: int
    first: int
    last: int
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)


def share_memory(program: Sequence[Call], own: Iterable[int], kept: Sequence[torch.Tensor]) -> int:
    """Move a program's own tensors into one piece of memory, so that lives that do not overlap share it.

    What they hold is lost: the program is to be run from its beginning.

    Args:
        program: calls in order; tensors stand in their arguments, nested or not.
        own: storages (`storage_of`) that the program fills before it reads them.
        kept: tensors that are read after the last call; they overlap nothing.

    Returns:
        the bytes of that piece.
    """
    lives = _lives(program, set(own), kept)
    places, size = _first_fit(list(lives.values()))
    memory = torch.empty(size, dtype=torch.uint8).untyped_storage()
    for life, place in zip(lives.values(), places, strict=True):
        for tensor in life.tensors.values():
            offset = place // tensor.element_size() + tensor.storage_offset()
            tensor.set_(memory, offset, tensor.shape, tensor.stride())
    return size


def run_and_copy(func: Any, output: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call of an operation that cannot fill a tensor that is there: its result is copied into `output`."""
    output.copy_(func(*args, **kwargs))


def take_results(program: Sequence[Call], own: set[int], kept: Sequence[torch.Tensor]) -> list[Call]:
    """The program without the copies (`run_and_copy`) of what is kept: logits are large.

    What is used up within the step is copied all the same: memory that is written again stays near, and
    copying into it costs less than a fresh piece for every layer.

    Args:
        own: as for `share_memory`; storages that now come with each run are taken out.
    """
    lives = _lives(program, own & {storage_of(tensor) for tensor in kept}, kept)
    taking: list[Call] = []
    for function, args, kwargs in program:
        life = lives.get(storage_of(args[1])) if function is run_and_copy else None
        if life is None or args[1].nbytes < life.num_bytes:
            taking.append((function, args, kwargs))
            continue
        func, output, *how = args
        own.discard(storage_of(output))
        views = [(view, view.storage_offset()) for view in life.tensors.values()]
        taking.append((_run_and_take, (func, output.stride(), views, *how), {}))
    return taking


def _run_and_take(
    func: Any,
    stride: tuple[int, ...],
    views: list[tuple[torch.Tensor, int]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    result = func(*args, **kwargs)
    if result.stride() != stride:
        raise RuntimeError(f"{func} lays its result out in another way than when it was recorded")
    memory, begin = result.untyped_storage(), result.storage_offset()
    for view, offset in views:
        view.set_(memory, begin + offset, view.shape, view.stride())


def storage_of(tensor: torch.Tensor) -> int:
    """What tells a tensor's memory from others'; packed weights have none and are themselves."""
    if tensor.layout != torch.strided:
        return id(tensor)
    return int(tensor.untyped_storage()._cdata)


def tensors_in(tree: Any) -> Iterable[torch.Tensor]:
    """The tensors of nested arguments."""
    return (leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor))


def _lives(program: Sequence[Call], own: set[int], kept: Sequence[torch.Tensor]) -> dict[int, _Life]:
    lives: dict[int, _Life] = {}
    for number, (_, args, kwargs) in enumerate([*program, (None, tuple(kept), {})]):
        for tensor in tensors_in((args, kwargs)):
            storage = storage_of(tensor)
            if storage not in own:
                continue
            size = tensor.untyped_storage().nbytes()
            life = lives.setdefault(storage, _Life(size, number, number))
            life.last = number
            life.tensors[id(tensor)] = tensor
    return lives


def _first_fit(lives: list[_Life]) -> tuple[list[int], int]:
    """A place in bytes for each, the lowest that nothing alive at the same time takes; and their end."""
    placed: list[tuple[int, int, _Life]] = []
    places = []
    for life in lives:  # in the order of their first calls
        at = 0
        size = -(-life.num_bytes // ALIGNMENT) * ALIGNMENT
        for begin, end, other in sorted(placed, key=lambda entry: entry[0]):
            if other.last < life.first or end <= at:
                continue
            if begin >= at + size:
                break
            at = end
        placed = [entry for entry in placed if entry[2].last >= life.first]
        placed.append((at, at + size, life))
        places.append(at)
    return places, max((at + life.num_bytes for at, life in zip(places, lives, strict=True)), default=0)
