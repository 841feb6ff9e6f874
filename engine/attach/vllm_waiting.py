"""Why requests wait on a recording vLLM: its own states where it has one, else what the step lacked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.attach.vllm_requests import Followed
from engine.stream.records import WAITING_SHOWN, WaitingRecord

#: vLLM's states of a request that waits for something of its own, in words.
_OWN = {
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "its grammar is being compiled",
    "WAITING_FOR_FSM": "its grammar is being compiled",
    "WAITING_FOR_LORA": "the batch holds as many LoRA adapters as it may",
    "WAITING_FOR_REMOTE_KVS": "its KV comes from elsewhere",
    "WAITING_FOR_STREAMING_REQ": "the rest of its prompt is to come",
}


def waiting_records(
    queue: Sequence[tuple[int, str]],
    late: Sequence[int],
    requests: Mapping[int, Followed],
    lacking: str,
    idle: int,
) -> tuple[WaitingRecord, ...]:
    """The first that wait, and why.

    Args:
        queue: those the server looked at in the step, with its states.
        late: those that came while the step ran.
        requests: all that are known, by number.
        lacking: what the head of the queue lacked (`vllm_steps.lacking`).
        idle: slots that stayed empty.
    """
    waiting: list[WaitingRecord] = []
    head = ""
    for number, status in queue:
        if (request := requests.get(number)) is None:
            continue
        own = _OWN.get(status, "")
        reason, blocked_by = own or lacking, ""
        if not own and lacking in ("token_budget", "kv_blocks"):
            # Not fitting is the head's own trouble; everyone else waits behind it.
            if head:
                reason, blocked_by = "behind", head
            head = head or request.request_id
        waiting.append(WaitingRecord(request.request_id, reason, blocked_by, idle, status == "PREEMPTED"))
    waiting += [WaitingRecord(requests[number].request_id, "next_step", "", idle) for number in late]
    return tuple(waiting[:WAITING_SHOWN])
