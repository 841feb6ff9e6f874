"""How many torch threads to use: one a core, or a single one.

On a quiet machine one thread a core is fastest. On a busy one OpenMP's threads wait for each other at
every product, spinning: two threads on two busy cores were seen to be 10 to 50 times slower than one.
The system's load says little (it lags by a minute, and counts this process), so both are tried, on
steps: at the start, and again once steps take much longer than they did, or the machine has become
quiet. Knows nothing of torch: how to set the number is given.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Hashable

#: Timed steps of each number, at the start and in a trial.
PROBE_STEPS = 4

#: A step this much slower than the best one ends a probe or a trial of that number at once.
HOPELESS = 3.0

#: Steps in a row that take this much longer than the best of their kind mean that the load has changed.
DRIFT, DRIFT_STEPS = 2.0, 3

#: Seconds between trials, doubled after each that changed nothing.
PATIENCE_S, LONGEST_PATIENCE_S = 10.0, 160.0


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_average() -> float:
    """Processes that ran or waited for a core in the last minute, this one included; 0 where unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def default_num_threads() -> int:
    """One thread a core this process may use, or a single one while the machine is busy already."""
    return 1 if load_average() >= num_cores() else num_cores()


class ThreadChooser:
    """Chooses between one thread and all cores by what steps take.

    Args:
        use: sets the number of threads.
        cores: the larger number; with one core there is nothing to choose.
        load: the machine's load average.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        use: Callable[[int], None],
        cores: int,
        load: Callable[[], float] = load_average,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._use = use
        self._cores = cores
        self._load = load
        self._clock = clock
        self.num_threads = cores
        #: Shortest step of each kind, by number of threads.
        self._best: dict[tuple[int, Hashable], float] = {}
        self._slow_steps = 0
        self._patience = PATIENCE_S
        self._last_trial = clock()
        self._trial: _Trial | None = None

    def probe(self, step: Callable[[], float]) -> int:
        """Run a few steps with each number, in turn, and use the better one from now on.

        Args:
            step: runs one step and returns its seconds.
        """
        if self._cores > 1:
            times: dict[int, list[float]] = {1: [], self._cores: []}
            for number in times:
                self._use(number)
                step()  # the first one starts threads and fills caches
            for _ in range(PROBE_STEPS):
                for number, taken in times.items():
                    self._use(number)
                    taken.append(step())
                if times[self._cores][-1] > HOPELESS * times[1][-1]:
                    break
            self.num_threads = min(times, key=lambda number: statistics.median(times[number]))
        self._use(self.num_threads)
        self._last_trial = self._clock()
        return self.num_threads

    def observe(self, kind: Hashable, seconds: float) -> None:
        """Take note of a step. Steps of one kind cost the same; a kind is compared with itself only.

        Sets the number of threads for the next step, if a trial begins or ends with this one.
        """
        if self._cores == 1:
            return
        if self._trial is not None:
            self._continue_trial(self._trial, kind, seconds)
            return
        key = (self.num_threads, kind)
        best = self._best[key] = min(seconds, self._best.get(key, seconds))
        self._slow_steps = self._slow_steps + 1 if seconds > DRIFT * best else 0
        if self._clock() - self._last_trial < self._patience:
            return
        quiet = self.num_threads == 1 and self._load() < self._cores - 0.5
        if self._slow_steps >= DRIFT_STEPS or quiet:
            other = 1 if self.num_threads > 1 else self._cores
            # What the steps before took under this load, not the best they ever took.
            self._trial = _Trial(self.num_threads, other, kind, seconds)
            self._use(other)

    def _continue_trial(self, trial: _Trial, kind: Hashable, seconds: float) -> None:
        if kind != trial.kind:  # nothing to compare it with
            self._end_trial(trial.before)
            return
        trial.times.append(seconds)
        if seconds > HOPELESS * trial.seconds_before:
            self._end_trial(trial.before)
        elif len(trial.times) > PROBE_STEPS:  # the first one started threads
            better = statistics.median(trial.times[1:]) < trial.seconds_before
            self._end_trial(trial.other if better else trial.before)

    def _end_trial(self, number: int) -> None:
        changed = number != self.num_threads
        self._patience = PATIENCE_S if changed else min(2 * self._patience, LONGEST_PATIENCE_S)
        self.num_threads = number
        self._use(number)
        self._trial, self._slow_steps, self._last_trial = None, 0, self._clock()
        self._best.clear()  # bests of another load would call every step slow


class _Trial:
    """The other number of threads, on probation."""

    def __init__(self, before: int, other: int, kind: Hashable, seconds_before: float) -> None:
        self.before = before
        self.other = other
        self.kind = kind
        self.seconds_before = seconds_before
        self.times: list[float] = []
