"""What an import drags in, seen in a process of its own: the contracts of `pyproject.toml` at run time."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TENSORS = ("torch", "transformers", "accelerate", "gguf", "safetensors", "numpy")
SCREEN = ("textual", "rich", "typer", "cbtui")


def modules_of(package: str) -> list[str]:
    """The package and all modules below it, without importing any (so that none can hide another)."""

    def below(folder: Path, prefix: str) -> list[str]:
        names = []
        for module in pkgutil.iter_modules([str(folder)], prefix):
            names.append(module.name)
            names += below(folder / module.name.rpartition(".")[2], f"{module.name}.")
        return names

    return [package, *below(ROOT / package, f"{package}.")]


def is_worker_side(module: str) -> bool:
    return module.startswith("engine.torch_runner") or module == "engine.worker.__main__"


def imported_by(modules: list[str]) -> set[str]:
    """Top-level packages loaded after importing `modules` in a fresh interpreter."""
    code = f"import sys\nfor name in {modules!r}: __import__(name)\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {name.partition(".")[0] for name in run.stdout.split()}


ENGINE = [name for name in modules_of("engine") if not is_worker_side(name)]
APP = modules_of("cbtui")


def test_the_walk_finds_modules_and_leaves_out_the_worker_side() -> None:
    assert {"engine", "engine.step.plan", "engine.model_store.cache"} <= set(ENGINE)
    assert any(map(is_worker_side, modules_of("engine")))
    assert not any(map(is_worker_side, ENGINE))


def test_the_engine_imports_neither_tensors_nor_a_screen() -> None:
    assert not imported_by(ENGINE) & {*TENSORS, *SCREEN}


def test_the_app_imports_no_tensors() -> None:
    assert not imported_by(APP) & set(TENSORS)


@pytest.mark.parametrize("missing", ["textual", "torch"])
def test_the_engine_imports_without(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfor name in {ENGINE!r}: __import__(name)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
