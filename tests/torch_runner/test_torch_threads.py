"""One thread or all cores: whichever steps are shorter with, found again when the load changes."""

from __future__ import annotations

from engine.torch_runner.threads import DRIFT_STEPS, PATIENCE_S, PROBE_STEPS, ThreadChooser


class Machine:
    """Two cores; a step takes 1 s on one of them, and on both what `both_s` says."""

    def __init__(self, both_s: float, cores: int = 2) -> None:
        self.both_s = both_s
        self.one_s = 1.0
        self.now = 0.0
        self.load = 1.0
        self.threads = 0
        self.steps: list[int] = []
        self.chooser = ThreadChooser(self._use, cores, lambda: self.load, lambda: self.now)

    def _use(self, number: int) -> None:
        self.threads = number

    def step(self) -> float:
        seconds = self.both_s if self.threads > 1 else self.one_s
        self.now += seconds
        self.steps.append(self.threads)
        return seconds

    def run(self, count: int, kind: str = "decode") -> list[int]:
        """Steps as the runner takes them; the threads each ran on."""
        before = len(self.steps)
        for _ in range(count):
            self.chooser.observe(kind, self.step())
        return self.steps[before:]


def test_the_better_number_is_used_from_the_start() -> None:
    for both_s, expected in ((0.6, 2), (1.4, 1)):
        machine = Machine(both_s)
        assert machine.chooser.probe(machine.step) == expected
        assert machine.threads == expected
        assert len(machine.steps) == 2 * (1 + PROBE_STEPS)


def test_a_hopeless_number_is_given_up_at_once() -> None:
    machine = Machine(both_s=40.0)
    assert machine.chooser.probe(machine.step) == 1
    assert machine.steps.count(2) == 2


def test_one_core_leaves_nothing_to_choose() -> None:
    machine = Machine(1.0, cores=1)
    assert machine.chooser.probe(machine.step) == 1
    assert machine.steps == []
    machine.both_s = 50.0
    assert set(machine.run(100)) == {1}


def test_a_machine_that_becomes_busy_is_noticed() -> None:
    machine = Machine(both_s=0.6)
    machine.chooser.probe(machine.step)
    assert set(machine.run(50)) == {2}
    machine.both_s, machine.load = 20.0, 3.0
    steps = machine.run(50)
    assert steps.count(2) <= DRIFT_STEPS + 1
    assert machine.threads == 1


def test_a_machine_that_becomes_quiet_is_noticed() -> None:
    machine = Machine(both_s=20.0)
    machine.chooser.probe(machine.step)
    machine.load = 3.0
    assert set(machine.run(50)) == {1}, "no trial while others want the cores"
    machine.both_s, machine.load = 0.6, 1.0
    machine.run(20)
    assert machine.threads == 2


def test_trials_that_change_nothing_become_rarer() -> None:
    machine = Machine(both_s=20.0)
    machine.chooser.probe(machine.step)
    begun = machine.now
    tried = [machine.now - begun for threads in machine.run(1000) if threads == 2]
    assert 1 <= len(tried) <= 10


def test_a_slow_kind_of_step_is_no_drift() -> None:
    machine = Machine(both_s=0.6)
    machine.chooser.probe(machine.step)
    machine.run(int(2 * PATIENCE_S))
    machine.both_s = 6.0
    assert set(machine.run(20, "long prefill")) == {2}


def test_a_trial_ends_when_other_steps_come() -> None:
    machine = Machine(both_s=0.6)
    machine.chooser.probe(machine.step)
    machine.run(50)
    machine.both_s = 20.0
    while machine.threads == 2:
        machine.run(1)
    machine.run(1, "prefill")
    assert machine.threads == 2
