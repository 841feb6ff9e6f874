"""What an engine's state will be once it has taken in the commands sent to it. Pure.

Keys such as one slot more or twice as fast count from where things stand. The engine answers within a step,
a person's finger is faster: counting from the newest state alone, the second of two fast keys would do
nothing.
"""

from __future__ import annotations

from collections import deque

import msgspec

from engine.live.commands import Command, Configure, Pause, Resume, SetMode, SetSpeed, Step
from engine.live.state import EngineState

#: States published after a command was sent, of which the last has surely taken it in: that of the step under
#: way, and that of the turn which applies it.
_TAKEN_IN_AFTER = 2
#: More keys than anybody presses within a step.
_MOST = 32


class Foresight:
    """Remembers commands until the engine has surely taken them in."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, Command]] = deque(maxlen=_MOST)

    def note(self, state: EngineState, command: Command) -> None:
        """A command was sent while this was the newest state."""
        self._sent.append((state.version, command))

    def of(self, state: EngineState) -> EngineState:
        """The newest state with all that was asked for in force, or waiting for the next step."""
        while self._sent and state.version > self._sent[0][0] + _TAKEN_IN_AFTER:
            self._sent.popleft()
        for _, command in self._sent:
            state = _after(state, command)
        return state


def _after(state: EngineState, command: Command) -> EngineState:
    match command:
        case Pause() | Step():
            return msgspec.structs.replace(state, paused=True)
        case Resume():
            return msgspec.structs.replace(state, paused=False)
        case SetSpeed(speed):
            return msgspec.structs.replace(state, speed=speed)
        case SetMode(mode):
            return msgspec.structs.replace(state, pending_mode=mode)
        case Configure(max_num_seqs=int(slots)):
            config = state.pending_config or state.config
            if slots > config.max_num_batched_tokens:
                return state  # it will be refused
            wanted = msgspec.structs.replace(config, max_num_seqs=slots)
            return msgspec.structs.replace(state, pending_config=wanted)
    return state
