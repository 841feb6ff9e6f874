"""What a key means in a given state: a command for the engine, or a sentence why there is none. Pure."""

from __future__ import annotations

from cbtui.keys import Key
from cbtui.looks.tokens import prose
from engine.attach.source import OWN
from engine.config import SLOT_LIMIT
from engine.live.commands import Command, Configure, Pause, Resume, SetMode, SetSpeed
from engine.live.state import EngineState

#: Steps a second the speed keys walk through; beyond the last: as fast as it can.
SPEEDS: tuple[float, ...] = (0.5, 1, 2, 4, 8, 16, 32, 64, 128)


class NoOrder(Exception):
    """A key that can do nothing now; the message says why, in a sentence."""


def why_not(state: EngineState, key: Key) -> str:
    """Why a key can do nothing with what is on the screen, in a sentence; empty: it can.

    One rule for an engine here, a recording and every server: what a key asks for is asked of all of them.
    """
    whose = state.provenance
    if key.asks == "blocks" and whose is not None and (why := whose.why_absent("blocks")):
        return f"no KV blocks to show: {prose(why)}"
    why = state.why_refused(key.asks)
    if why and key.asks == "mode" and whose is not None:
        name, reason = whose.no_modes[0] if whose.no_modes else ("", "")
        return f"{prose(whose.engine)} cannot be {name}: {prose(reason)}" if name else why
    return f"{why}; `cbtui race` runs one on a model of its own" if why and key.asks == "model" else why


def pause_order(state: EngineState) -> Command:
    """Pause, or run on."""
    return Resume() if state.paused else Pause()


def mode_order(state: EngineState) -> Command:
    """The other one of static and continuous. From any other mode: static, the one to compare with."""
    wanted = state.pending_mode or state.mode
    return SetMode("continuous" if wanted == "static" else "static")


def slots_order(state: EngineState, by: int) -> Command:
    """More or fewer slots.

    Raises:
        NoOrder: there would be none, more than the engine can hold, or more than the budget can feed.
    """
    config = state.pending_config or state.config
    wanted = config.max_num_seqs + by
    if wanted < 1:
        raise NoOrder("one slot is the least")
    if wanted > SLOT_LIMIT:
        raise NoOrder(f"{SLOT_LIMIT} slots are the most")
    if wanted > config.max_num_batched_tokens:
        raise NoOrder(f"a budget of {config.max_num_batched_tokens} tokens feeds no more slots")
    return Configure(max_num_seqs=wanted)


def speed_order(state: EngineState, by: int) -> Command:
    """Half or twice as many steps a second.

    Raises:
        NoOrder: it is as slow, or as fast, as it gets.
    """
    if state.speed is None:
        if by > 0:
            raise NoOrder("it runs as fast as it can")
        return SetSpeed(SPEEDS[-1])
    wanted = state.speed * 2.0**by
    if wanted < SPEEDS[0]:
        raise NoOrder(f"{SPEEDS[0]:g} steps a second is the slowest; s takes single steps")
    return SetSpeed(wanted if wanted <= SPEEDS[-1] else None)


def pending_words(state: EngineState, command: Command) -> str:
    """What to say of a setting that waits for the next step, because the engine is paused in its work."""
    if not (state.paused and num_unfinished(state)):
        return ""
    match command:
        case SetMode(mode):
            return f"{mode} from the next step on"
        case Configure(max_num_seqs=int(slots)):
            return f"{slots} slot{'s' * (slots != 1)} from the next step on"
    return ""


def done_words(command: Command) -> str:
    """What a command did, in a word or two, for a reader who looks elsewhere; empty: it says so itself."""
    match command:
        case Pause():
            return "paused"
        case Resume():
            return "resumed"
        case SetMode(mode):
            return f"{mode} asked for"
        case SetSpeed(speed):
            return "full speed" if speed is None else f"{speed:g} steps/s at most"
        case Configure(max_num_seqs=int(slots)):
            return f"{slots} slot{'s' * (slots != 1)} asked for"
    return ""


def is_running(state: EngineState, request_id: str) -> bool:
    """Whether a request has a slot and is not finished."""
    return any(slot.request_id == request_id and not slot.held for slot in state.slots)


def is_waiting(state: EngineState, request_id: str) -> bool:
    """Whether a request is in the queue, or on its way to it, as far as the state names it."""
    return any(w.request_id == request_id for w in state.waiting) or any(
        a.request_id == request_id for a in state.arriving
    )


def num_unfinished(state: EngineState) -> int:
    """Requests that would be lost by quitting now; a recording loses nothing, a server only ours."""
    if state.is_recording:
        return 0
    if state.is_attached:
        ids = [slot.request_id for slot in state.slots] + [one.request_id for one in state.waiting]
        return sum(one.startswith(OWN) for one in ids) + state.arriving_count
    return sum(not slot.held for slot in state.slots) + state.waiting_count + state.arriving_count
