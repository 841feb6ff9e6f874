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
    "draining": "static starts when those that run have ended",
    "loading": "model loading",
    "encoding": "being tokenized",
    "paused": "paused",
    "next_step": "enters at the next step",
    "held_here": "held back here until others have ended",
    "held_steps": "its steps are held back",
    "not_in_a_slot_yet": "not in a slot yet",
}
#: Reasons that hold for a moment only: how long they lasted says nothing.
MOMENTARY = ("loading", "encoding", "paused", "next_step", "not_in_a_slot_yet", "held_here", "held_steps")


def why(badges: Badges, waiting: WaitingRecord, *, num_held: int = 0, draining: int = 0) -> str:
    """The reason alone, without how long it has lasted.

    Args:
        num_held: slots that requests which have ended still hold.
        draining: requests that run and must end before static batching forms a wave of its own.
    """
    if waiting.reason == "behind" and waiting.blocked_by in badges:
        words = f"behind {badges[waiting.blocked_by].letter}, which does not fit"
    elif waiting.reason == "wave":
        words = ", ".join(("wave not over", *_unused(waiting, num_held)))
    elif waiting.reason == "draining" and draining:
        words = f"static starts when {draining} {'has' if draining == 1 else 'have'} ended"
    else:
        words = WORDS.get(waiting.reason, waiting.reason.replace("_", " "))
    return "preempted, " + words if waiting.preempted else words


def _unused(waiting: WaitingRecord, num_held: int) -> list[str]:
    """The slots a wave does not use: those held by requests that have ended, and those it never filled."""
    empty = max(0, waiting.idle_slots - num_held)
    parts = [f"{count(num_held, 'slot')} held"] if num_held else []
    return parts + ([f"{empty} empty" if parts else f"{count(empty, 'slot')} empty"] if empty else [])
