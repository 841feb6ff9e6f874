"""Why a waiting request waits, in words. Pure."""

from __future__ import annotations

from cbtui.telling.naming import Badges
from cbtui.telling.words import count
from engine.stream.records import WaitingRecord

#: Reasons that need no numbers, in words.
WORDS = {
    "no_free_slot": "no free slot",
    "token_budget": "over the step's token budget",
    "kv_blocks": "not enough free KV blocks",
    "draining": "draining before static",
    "loading": "model loading",
    "encoding": "being tokenized",
    "paused": "paused",
    "next_step": "takes effect at next step",
}
#: Reasons that hold for a moment only: how long they lasted says nothing.
MOMENTARY = ("loading", "encoding", "paused", "next_step")


def why(badges: Badges, waiting: WaitingRecord) -> str:
    """The reason alone, without how long it has lasted."""
    if waiting.reason == "behind" and waiting.blocked_by in badges:
        words = f"behind {badges[waiting.blocked_by].letter}, which does not fit"
    elif waiting.reason == "wave":
        idle = count(waiting.idle_slots, "slot") + " idle" if waiting.idle_slots else ""
        words = ", ".join(part for part in ("wave not over", idle) if part)
    else:
        words = WORDS.get(waiting.reason, waiting.reason.replace("_", " "))
    return "preempted: KV blocks taken back · " + words if waiting.preempted else words
