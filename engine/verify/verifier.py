"""Checks what has ended, piece by piece: whoever waits for the model waits no longer than for one.

Owns the queue of finished requests and the pace; when there is time for a piece is its caller's to say.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from engine.runner import ForwardError, ModelRunner, RunnerDied
from engine.step.check import Check, Checked
from engine.stream.records import Record, Verification
from engine.verify.served import Served, ServedRequests, judged, pieces, unchecked

#: Tokens of the first piece; a piece is then as long as is done in about `PIECE_S` seconds.
FIRST_PIECE = 16
MOST_IN_PIECE = 512
PIECE_S = 0.1
#: The same where nobody waits for the model meanwhile.
UNHURRIED_S = 1.0
#: Requests that may wait for their check; the oldest beyond that are left unchecked, and said to be.
MOST_WAITING = 1000


class Verifier:
    """Checks what has ended, piece by piece, oldest first.

    Args:
        runner: of the model that served; a check changes nothing for its steps.
        now_s: a monotonic clock, seconds.
        most_s: about what a piece may take, seconds.
    """

    def __init__(
        self,
        runner: ModelRunner,
        now_s: Callable[[], float] = time.perf_counter,
        *,
        most_s: float = PIECE_S,
    ) -> None:
        self._runner = runner
        self._now_s = now_s
        self._most_s = most_s
        self._requests = ServedRequests()
        self._waiting: deque[Served] = deque()
        self._left: deque[Verification] = deque()
        self._pieces: Iterator[Check] | None = None
        self._checked: list[Checked] = []
        self._epoch = 0
        self._dtype = ""
        self._piece = FIRST_PIECE
        #: What the next piece may be expected to take, seconds.
        self.piece_s = most_s

    def __len__(self) -> int:
        """Requests that wait for their verdict."""
        return len(self._waiting) + len(self._left)

    def begin(self, epoch: int, dtype: str) -> None:
        """The model is there, or there again: what was under way begins anew."""
        self._epoch, self._dtype = epoch, dtype
        self._start_over()

    def apply(self, record: Record) -> None:
        """Take a record in; what ended in it waits for its check."""
        for served in self._requests.apply(record):
            self._waiting.append(served)
        while len(self._waiting) > MOST_WAITING:
            # Not the oldest: that one may be under way.
            late = self._waiting[1]
            del self._waiting[1]
            why = f"more than {MOST_WAITING:,} requests waited for their check"
            self._left.append(unchecked(late, why))

    def turn(self) -> Verification | None:
        """Check one piece; a verdict when that was a request's last.

        Raises:
            RunnerDied: the runner is gone. The request under check is left unchecked: it may be to blame.
        """
        if self._left:
            return self._left.popleft()
        if not self._waiting:
            return None
        served = self._waiting[0]
        if self._pieces is None:
            outputs = served.output_token_ids
            self._pieces = pieces(self._epoch, served.prompt_token_ids, outputs, lambda: self._piece)
        check = next(self._pieces)
        begun = self._now_s()
        try:
            self._checked.append(self._runner.check(check))
        except ForwardError as error:
            return self._leave(str(error))
        except RunnerDied as death:
            self._left.append(self._leave(str(death)))
            raise
        self._pace(self._now_s() - begun, len(check.token_ids))
        if not check.is_last:
            return None
        verdict = judged(served, self._checked, self._dtype)
        self._done()
        return verdict

    def give_up(self, why: str) -> None:
        """There is nothing left to check with: all that wait get no verdict."""
        self._left.extend(unchecked(served, why) for served in self._waiting)
        self._waiting.clear()
        self._start_over()

    def _pace(self, seconds: float, num_tokens: int) -> None:
        """A piece as long as takes about `most_s`, growing no faster than to the double."""
        self.piece_s = max(seconds, 1e-6)
        wanted = int(num_tokens * self._most_s / self.piece_s)
        self._piece = max(1, min(wanted, 2 * num_tokens, MOST_IN_PIECE))

    def _leave(self, why: str) -> Verification:
        left = unchecked(self._waiting[0], why)
        self._done()
        return left

    def _done(self) -> None:
        self._waiting.popleft()
        self._start_over()

    def _start_over(self) -> None:
        self._pieces, self._checked = None, []


def check_all(verifier: Verifier) -> Iterator[Verification]:
    """Verdicts on all that wait, one after another; without a model they say that there is none."""
    while len(verifier):
        try:
            verdict = verifier.turn()
        except RunnerDied as death:
            verifier.give_up(str(death))
            continue
        if verdict is not None:
            yield verdict
