"""Programs whose tensors share memory compute what they computed before."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.torch_runner.replay_memory import (
    ALIGNMENT,
    Call,
    run_and_copy,
    share_memory,
    storage_of,
    take_results,
)


class Program:
    """Random calls on tensors of random sizes, as a recording leaves them.

    Every call reads one or two tensors that are there, whole or through a view, and fills a new one; some
    change a tensor in place. The last tensors are kept.
    """

    def __init__(self, choices: list[tuple[int, int, int, int]]) -> None:
        self.source = torch.zeros(64)
        self.calls: list[Call] = []
        self.own: set[int] = set()
        made = [self.source]
        for kind, first, second, size in choices:
            one, other = made[-1 - first % len(made)], made[-1 - second % len(made)]
            one, other = one[:size], other.view(-1)[-size:]
            new = torch.empty(min(len(one), len(other)))
            one, other = one[: len(new)], other[: len(new)]
            if kind == 0:
                self.calls.append((torch.add, (one, other), {"out": new}))
            elif kind == 1:
                self.calls.append((run_and_copy, (torch.mul, new, (one, other), {}), {}))
            elif kind == 2 and one.data_ptr() != self.source.data_ptr():
                self.calls.append((torch.Tensor.add_, (one, 1.0), {}))
                continue
            else:
                new = torch.empty(len(one) + len(other))
                self.calls.append((torch.cat, ([one, other],), {"out": new}))
            self.own.add(storage_of(new))
            made.append(new)
        self.kept = made[-1]

    def run(self, number: int) -> torch.Tensor:
        self.source.copy_(torch.linspace(number, number + 1, 64))
        for function, args, kwargs in self.calls:
            function(*args, **kwargs)
        return self.kept.clone()


CHOICES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), st.integers(1, 64)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=200)
@given(CHOICES)
def test_a_program_gives_the_same_in_shared_memory(choices: list[tuple[int, int, int, int]]) -> None:
    program = Program(choices)
    expected = [program.run(number) for number in range(3)]
    program.calls = take_results(program.calls, program.own, [program.kept])
    share_memory(program.calls, program.own, [program.kept])
    assert [program.run(number).tolist() for number in range(3)] == [each.tolist() for each in expected]


def test_a_chain_needs_two_tensors_at_a_time() -> None:
    layers = [torch.zeros(1000) for _ in range(50)]
    calls: list[Call] = [
        (torch.add, (before, 1.0), {"out": after}) for before, after in itertools.pairwise(layers)
    ]
    own = {storage_of(layer) for layer in layers[1:]}
    size = share_memory(calls, own, [layers[-1]])
    assert size <= 2 * (4000 + ALIGNMENT)
    for function, args, kwargs in calls:
        function(*args, **kwargs)
    assert layers[-1].tolist() == [49.0] * 1000


def test_what_is_kept_is_taken_without_a_copy_and_what_is_used_up_is_not() -> None:
    start, middle, end = torch.ones(4), torch.empty(4), torch.empty(4)
    calls: list[Call] = [
        (run_and_copy, (torch.add, middle, (start, 1.0), {}), {}),
        (run_and_copy, (torch.add, end, (middle, 1.0), {}), {}),
    ]
    own = {storage_of(middle), storage_of(end)}
    taking = take_results(calls, own, [end[1:]])
    assert taking[0] == calls[0]
    assert taking[1][0] is not run_and_copy
    assert own == {storage_of(middle)}
    for function, args, kwargs in taking:
        function(*args, **kwargs)
    assert end.tolist() == [3.0] * 4
