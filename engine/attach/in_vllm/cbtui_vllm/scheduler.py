"""vLLM's own scheduler, with a recorder looking over its shoulder.

`--scheduler-cls cbtui_vllm.scheduler.RecordingScheduler`. Every decision, every exception and every result
is vLLM's; the recorder is told before and after, and cannot raise.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from time import monotonic
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from .facts import facts_of, is_rank, rank_of
from .places import VARIABLE, place_of
from .recorder import Recorder
from .stream import Stream

_log = logging.getLogger("vllm.cbtui")


class RecordingScheduler(Scheduler):
    """Schedules as vLLM does. Where the server schedules asynchronously, it is an `AsyncScheduler`, too."""

    _recorder: Recorder | None = None

    def __new__(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        if (own := _own_scheduler(vllm_config)) is not None:
            _log.warning(
                "cbtui: nothing is recorded: the model needs a scheduler of its own, %s", own.__name__
            )
            return own(vllm_config, *args, **kwargs)
        if cls is RecordingScheduler and vllm_config.scheduler_config.async_scheduling:
            return super().__new__(AsyncRecordingScheduler)
        return super().__new__(cls)

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        try:
            # Ranks are found side by side under the process that started all of them.
            pid = os.getppid() if is_rank(vllm_config) else os.getpid()
            place = place_of(os.environ.get(VARIABLE), rank_of(vllm_config), pid=pid)
            self._recorder = _recorder(Stream(place, facts_of(vllm_config, self)), self)
            command = "attach" if place.is_socket else "replay"
            _log.info("cbtui: to watch every step: cbtui %s %s", command, place)
        except Exception as exc:
            _log.warning("cbtui: nothing is recorded: %s: %s", type(exc).__name__, exc)

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().add_request(request, *args, **kwargs)
        if self._recorder is not None:
            self._recorder.arrived(self, request)
        return result

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if recorder is None:
            return super().schedule(*args, **kwargs)
        recorder.before(self)
        start_s = monotonic()
        output = super().schedule(*args, **kwargs)
        recorder.scheduled(self, output, start_s, monotonic())
        return output

    def update_from_output(
        self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._recorder is not None:
            self._recorder.answered(scheduler_output, model_runner_output)
        start_s = monotonic()
        outputs = super().update_from_output(scheduler_output, model_runner_output, *args, **kwargs)
        if self._recorder is not None:
            step = (scheduler_output, model_runner_output, outputs)
            self._recorder.updated(self, step, start_s, monotonic())
        return outputs

    def finish_requests(self, request_ids: Any, finished_status: Any, *args: Any, **kwargs: Any) -> Any:
        if request_ids is None:
            named: Iterable[str] = list(self.requests)
        elif isinstance(request_ids, str):
            named = (request_ids,)
        else:
            named = request_ids = list(request_ids)
        result = super().finish_requests(request_ids, finished_status, *args, **kwargs)
        if self._recorder is not None:
            self._recorder.ended(self, named, _reason(finished_status))
        return result

    def reset_prefix_cache(self, reset_running_requests: bool = False, *args: Any, **kwargs: Any) -> Any:
        if reset_running_requests and self._recorder is not None:
            self._recorder.emptied(self)
        return super().reset_prefix_cache(reset_running_requests, *args, **kwargs)

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        if self._recorder is not None:
            self._recorder.close()
        return super().shutdown(*args, **kwargs)


class AsyncRecordingScheduler(RecordingScheduler, AsyncScheduler):
    """The same for a server that schedules a step before the last one's tokens are there."""


def _recorder(stream: Stream, scheduler: Scheduler) -> Recorder:
    """A recorder; if there can be none, nobody shall find its stream."""
    try:
        return Recorder(stream, scheduler)
    except Exception:
        stream.close()
        raise


def _own_scheduler(vllm_config: Any) -> type | None:
    """The scheduler vLLM has for some models alone, and takes for them if nobody names another."""
    if getattr(vllm_config, "diffusion_config", None) is None:
        return None
    from vllm.v1.core.sched import diffusion_scheduler

    if vllm_config.scheduler_config.async_scheduling:
        return diffusion_scheduler.DiffusionAsyncScheduler
    return diffusion_scheduler.DiffusionScheduler


def _reason(finished_status: Any) -> str:
    """vLLM's word for why it ended requests."""
    try:
        reason = RequestStatus.get_finished_reason(finished_status)
    except Exception:
        reason = None
    return "abort" if reason is None else str(reason)  # `stop` is 0
