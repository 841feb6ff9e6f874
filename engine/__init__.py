"""A small continuous-batching engine that records every step. Imports no torch and no screen.

What other programs use is exported here, and imported when it is first asked for:

    from engine import Engine, EngineConfig, PromptRequest, drain, load_model
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.config import ConfigError, EngineConfig
    from engine.engine import Engine
    from engine.library import Model, load_model
    from engine.live.commands import PromptRequest
    from engine.request import SamplingParams
    from engine.runner import ModelInfo, ModelLoadError, ModelRunner, RunnerDied, RunnerError
    from engine.scheduling.modes import MODES
    from engine.scheduling.policies import POLICIES, Policy
    from engine.session import drain
    from engine.stream.ledger import Ledger, RequestStory
    from engine.stream.metrics import Metrics
    from engine.stream.records import QuietRecord, Record, Segment, StepRecord
    from engine.stream.trace_files import TraceRecorder, read_trace
    from engine.workload import FORMATS, read_workload

#: Where each name is.
_MODULES = {
    "engine.config": ("ConfigError", "EngineConfig"),
    "engine.engine": ("Engine",),
    "engine.library": ("Model", "load_model"),
    "engine.live.commands": ("PromptRequest",),
    "engine.request": ("SamplingParams",),
    "engine.runner": ("ModelInfo", "ModelLoadError", "ModelRunner", "RunnerDied", "RunnerError"),
    "engine.scheduling.modes": ("MODES",),
    "engine.scheduling.policies": ("POLICIES", "Policy"),
    "engine.session": ("drain",),
    "engine.stream.ledger": ("Ledger", "RequestStory"),
    "engine.stream.metrics": ("Metrics",),
    "engine.stream.records": ("QuietRecord", "Record", "Segment", "StepRecord"),
    "engine.stream.trace_files": ("TraceRecorder", "read_trace"),
    "engine.workload": ("FORMATS", "read_workload"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "FORMATS",
    "MODES",
    "POLICIES",
    "ConfigError",
    "Engine",
    "EngineConfig",
    "Ledger",
    "Metrics",
    "Model",
    "ModelInfo",
    "ModelLoadError",
    "ModelRunner",
    "Policy",
    "PromptRequest",
    "QuietRecord",
    "Record",
    "RequestStory",
    "RunnerDied",
    "RunnerError",
    "SamplingParams",
    "Segment",
    "StepRecord",
    "TraceRecorder",
    "drain",
    "load_model",
    "read_trace",
    "read_workload",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
