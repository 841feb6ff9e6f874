"""A folder for sockets, and the recorder on a stand-in for vLLM."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_vllm
import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # a socket's path has to be short
        yield Path(name)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake_vllm.install(monkeypatch)
    return importlib.import_module("cbtui_vllm.scheduler")
