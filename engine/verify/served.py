"""Requests as they were served, the check that judges one, and the verdict. Pure.

A reader of the stream of records: what is checked is what everybody else was told. One pass over prompt and
output, fed as served ("teacher forced"), gives at each place the token greedy decoding alone would take;
the first one that differs is the very token at which decoding alone, step by step, would part, because up to
there both have fed the same. That costs one prefill instead of as many steps as there are tokens, and goes
on to judge what was served after a near tie, which a second decoding could not. The log probabilities must
agree too: a wrong cell far back need not change which token wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from engine.step.check import Check, Checked
from engine.stream.records import NEAR_TIE, AloneVerdict, Record, RequestRecord, StepRecord, Verification

#: Log probabilities further apart than this are not rounding in float32 (ours differ by about 0.0001).
FAR = 0.01
HALF_PRECISION = ("float16", "bfloat16")


class Served(msgspec.Struct):
    """A greedy request as it was served. `steps` made the outputs, `logprobs` were told with them."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    output_token_ids: list[int] = []
    steps: list[int] = []
    logprobs: list[float | None] = []


def is_greedy(request: RequestRecord) -> bool:
    """Whether its tokens follow from its prompt alone."""
    return request.temperature <= 0 or request.top_k == 1


class ServedRequests:
    """Gathers greedy requests from records. `apply` each once, in order."""

    def __init__(self) -> None:
        self._open: dict[str, Served] = {}

    def apply(self, record: Record) -> list[Served]:
        """Take a record in; the requests that ended in it with something to check."""
        for request in record.events.submitted:
            if is_greedy(request):
                self._open[request.request_id] = Served(request.request_id, request.prompt_token_ids)
        if isinstance(record, StepRecord):
            for segment in record.segments:
                served = self._open.get(segment.request_id)
                outputs = segment.outputs
                if served is not None and outputs:
                    served.output_token_ids += outputs
                    served.steps += [record.step] * len(outputs)
                    served.logprobs += [*[None] * (len(outputs) - 1), segment.logprob]
        ended = [self._open.pop(finish.request_id, None) for finish in record.events.finished]
        return [served for served in ended if served is not None and served.output_token_ids]


def pieces(
    epoch: int, prompt: Sequence[int], outputs: Sequence[int], length: Callable[[], int]
) -> Iterator[Check]:
    """A request as the checks that judge all its outputs.

    Args:
        length: tokens of the next piece.
    """
    sequence = [*prompt, *outputs]
    num_fed, start = len(sequence) - 1, 0  # nothing follows the last token
    while start < num_fed:
        end = min(num_fed, start + max(1, length()))
        served = sequence[max(start + 1, len(prompt)) : end + 1]
        yield Check(epoch, start, sequence[start:end], served, is_last=end == num_fed)
        start = end


def judged(served: Served, checked: Iterable[Checked], dtype: str) -> Verification:
    """The verdict on a request.

    Args:
        checked: the answers to all of its pieces.
        dtype: of the model; in half precision a batch may well change which token wins.
    """
    choices: list[int] = []
    gaps: list[float] = []
    logprobs: list[float] = []
    for piece in checked:
        choices += piece.choices
        gaps += piece.gaps
        logprobs += piece.logprobs
    outputs = served.output_token_ids
    parted = [place for place, token in enumerate(outputs) if choices[place] != token]
    is_half = dtype in HALF_PRECISION
    drifts = [
        abs(told - alone) if told is not None else 0.0
        for told, alone in zip(served.logprobs, logprobs, strict=True)
    ]
    real = [place for place in parted if gaps[place] >= NEAR_TIE]
    far = [place for place, drift in enumerate(drifts) if not (drift <= FAR or is_half)]
    first = min([*real, *far], default=None)
    if first is None and not parted:
        return Verification(served.request_id, "same", len(outputs), drift=max(drifts))
    place = parted[0] if first is None else first
    verdict: AloneVerdict
    if first is None:
        verdict = "near_tie"
    elif is_half:
        verdict = "half_precision"
    else:
        verdict = "differs"
    return Verification(
        served.request_id,
        verdict,
        len(outputs),
        output_index=place,
        step=served.steps[place],
        token_id=outputs[place],
        alone_token_id=choices[place],
        gap=gaps[place],
        drift=max(drifts),
    )


def unchecked(served: Served, why: str) -> Verification:
    """No verdict, for a reason."""
    return Verification(served.request_id, "unchecked", len(served.output_token_ids), error=why)
