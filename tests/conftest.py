"""What every test may use: the default model's folder, and one deterministic hypothesis profile."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from engine.model_store import resolve

# Deterministic, or a failure in CI could not be repeated; no deadline, or a busy machine would fail tests.
settings.register_profile(
    "cbtui", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("cbtui")


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The converted default model. Never skips: `make setup` has fetched it."""
    return Path(resolve(None, lambda _: None).path)
