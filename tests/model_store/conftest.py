"""The tiny bundle for every test, and in the place of the default model."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tiny_model import Bench

# The package exports a function of the same name.
resolving = importlib.import_module("engine.model_store.resolve")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def as_default(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The tiny bundle in the place of the default model, in a cache folder of its own."""
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(bench.root))
    monkeypatch.setattr(resolving, "DEFAULT_MODEL", bench.bundle)
    return bench
