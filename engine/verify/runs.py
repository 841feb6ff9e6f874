"""Checks the runs of several modes at once: what was served alike is run alone once.

For `compare`, after the modes have been measured. The verdicts join each run's records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.runner import ModelRunner, Ready, RunnerError
from engine.step.check import Checked
from engine.stream.records import Events, QuietRecord, Record, Verification
from engine.verify.served import Served, ServedRequests, judged, pieces, unchecked

#: Tokens fed at once: nobody waits for the model.
PIECE = 256


def verify_runs(
    runner: ModelRunner,
    ready: Ready,
    runs: Mapping[str, list[Record]],
    token_bytes: Callable[[int], bytes] | None,
    on_checked: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, QuietRecord]:
    """Check every greedy request of every run.

    Args:
        runs: each with at least one record.
        token_bytes: a token id's bytes, for tokens that were chosen alone only.
        on_checked: told how many of how many different requests are checked.

    Returns:
        for each run, the record of its verdicts.
    """
    served = {name: _served(records) for name, records in runs.items()}
    different = {_key(one): one for run in served.values() for one in run}
    answers: dict[object, list[Checked] | str] = {}
    for number, (key, one) in enumerate(different.items(), 1):
        answers[key] = _alone(runner, ready.epoch, one)
        on_checked(number, len(different))
    return {
        name: _record(
            runs[name][-1], [_verdict(one, answers[_key(one)], ready.info.dtype) for one in run], token_bytes
        )
        for name, run in served.items()
    }


def _served(records: list[Record]) -> list[Served]:
    requests = ServedRequests()
    return [served for record in records for served in requests.apply(record)]


def _key(served: Served) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return served.prompt_token_ids, tuple(served.output_token_ids)


def _alone(runner: ModelRunner, epoch: int, served: Served) -> list[Checked] | str:
    """The answers to all pieces, or why there are none."""
    checks = pieces(epoch, served.prompt_token_ids, served.output_token_ids, lambda: PIECE)
    try:
        return [runner.check(check) for check in checks]
    except RunnerError as error:
        return str(error)


def _verdict(served: Served, answer: list[Checked] | str, dtype: str) -> Verification:
    return unchecked(served, answer) if isinstance(answer, str) else judged(served, answer, dtype)


def _record(
    last: Record, verdicts: list[Verification], token_bytes: Callable[[int], bytes] | None
) -> QuietRecord:
    time_s = last.time_s if isinstance(last, QuietRecord) else last.end_s
    alone = dict.fromkeys(one.alone_token_id for one in verdicts if one.alone_token_id is not None)
    tokens = tuple((token, token_bytes(token)) for token in alone) if token_bytes else ()
    return QuietRecord(last.step, time_s, Events(verified=tuple(verdicts), tokens=tokens))
