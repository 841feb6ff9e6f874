"""Devices and types: what is not there is said in a sentence; a step asks a device for its tokens once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.request import SamplingParams
from engine.runner import ModelLoadError
from engine.step.plan import Layout
from engine.torch_runner.load import check_dtype_on, choose_device
from tests.torch_runner.sequences import make_runner, run_step, three_sequences

LAYOUTS: list[Layout] = ["ragged", "padded"]


def refused(wanted: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        choose_device(wanted)
    assert caught.value.stage == "device" and caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("device", "backend", "name"), [("cuda", torch.cuda, "cuda"), ("mps", torch.backends.mps, "mps")]
)
def test_a_device_that_is_not_here_says_why(
    device: str, backend: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "is_available", lambda: False)
    built = getattr(torch.backends, name)
    monkeypatch.setattr(built, "is_built", lambda: False)
    assert f"there is no device '{device}' here: this torch was built without" in refused(device)
    monkeypatch.setattr(built, "is_built", lambda: True)
    assert "GPU that torch can use" in refused(device)


def test_a_gpu_beyond_the_last_one_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert "there are 2 of them, counted from 0" in refused("cuda:2")


@pytest.mark.parametrize("wanted", ["abacus", "meta", "", "cpu:x"])
def test_what_is_no_device_of_ours_is_refused(wanted: str) -> None:
    assert refused(wanted)


def test_auto_takes_the_first_of_cuda_mps_and_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"cuda": True, "mps": True}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there["cuda"])
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: there["mps"])
    for expected in ("cuda", "mps", "cpu"):
        assert choose_device("auto").type == expected
        there[expected] = False


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_mps_runs_in_float32_only(dtype: torch.dtype) -> None:
    check_dtype_on(torch.device("mps"), torch.float32)
    check_dtype_on(torch.device("cpu"), dtype)
    with pytest.raises(ModelLoadError, match="on mps is not used") as caught:
        check_dtype_on(torch.device("mps"), dtype)
    assert "--dtype float32" in caught.value.hint


class Questions(TorchDispatchMode):
    """Counts what would wait for an accelerator: numbers read one by one, and sizes that depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::")
        self.count += name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique")
        return func(*args, **(kwargs or {}))


def counted(
    layout: Layout, slots: range, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """Whole transfers and questions in a decode step of so many rows."""
    runner, sequences = make_runner("llama"), three_sequences(n_top=3)
    for sequence in sequences:
        sequence.sampling = sampling
    feeds: dict[int, int | None] = dict.fromkeys(slots)
    run_step(runner, feeds, sequences, layout)
    transfers = []
    for name in ("tolist", "item", "cpu", "numpy"):
        plain = getattr(torch.Tensor, name)

        def noted(self: torch.Tensor, *args: Any, _plain: Any = plain, _name: str = name) -> Any:
            transfers.append(_name)
            return _plain(self, *args)

        monkeypatch.setattr(torch.Tensor, name, noted)
    with Questions() as questions:
        run_step(runner, feeds, sequences, layout)
    monkeypatch.undo()
    return len(transfers), questions.count


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "sampling", [SamplingParams(), SamplingParams(temperature=0.7, top_k=20)], ids=["greedy", "drawn"]
)
def test_a_step_transfers_its_tokens_once_however_many_there_are(
    layout: Layout, sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = counted(layout, range(1), sampling, monkeypatch)
    three = counted(layout, range(3), sampling, monkeypatch)
    assert one[0] == three[0] == 1
    # A padded step's sampled places are a mask, whose size the device is asked for once.
    assert one[1] <= 1 and three[1] <= (layout == "padded")
