"""The model in a process of its own: `WorkerRunner` here, `python -m engine.worker` there.

`proxy` is what the engine holds, `process` the process it starts, `channel` its end of the pipes,
`log` where the process prints; `wire` is what both ends speak; `service` and `__main__` are the other
end, the only place where a torch runner is made. Nothing in this package imports torch by itself.
"""

from engine.worker.proxy import Timings, WorkerRunner
from engine.worker.wire import RunnerSpec

__all__ = ["RunnerSpec", "Timings", "WorkerRunner"]
