from __future__ import annotations

from engine.worker.silence import Silence


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_silence_grows_while_somebody_listens_and_ends_when_something_is_heard() -> None:
    clock = Clock()
    silence = Silence(clock, longest_gap_s=1.0)
    for _ in range(12):
        clock.now += 0.5
        seconds = silence.seconds()
    assert seconds == 6.0
    silence.broken()
    assert silence.seconds() == 0.0


def test_an_app_that_was_itself_stopped_does_not_blame_the_worker() -> None:
    clock = Clock()
    silence = Silence(clock, longest_gap_s=1.0)
    clock.now += 3600.0
    assert silence.seconds() == 1.0
