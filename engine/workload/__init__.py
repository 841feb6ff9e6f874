"""Request files: each format in a module of its own, told by content (`registry.py`).

Owns the words for what is wrong with a line. Knows nothing of tokenizers or engines.
"""

from engine.workload.lines import Asked, BadLine, WorkloadError
from engine.workload.registry import FORMATS, format_of, read_workload, require_all, tutorial_workload

__all__ = [
    "FORMATS",
    "Asked",
    "BadLine",
    "WorkloadError",
    "format_of",
    "read_workload",
    "require_all",
    "tutorial_workload",
]
