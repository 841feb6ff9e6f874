"""The live settings as a form: what is wanted, what is in force, what waits for the next step. Pure.

A number is changed by steps or typed; a choice is walked through. Nothing is sent before it is whole and
right: `commands` gives what to send, or says in a sentence what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cbtui.orders import SPEEDS
from engine.config import ConfigError, EngineConfig
from engine.live.commands import Command, Configure, SetMode, SetSpeed
from engine.live.state import EngineState
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES

MAX = "max"
_NUMBERS = ("budget", "slots", "speed")
#: Digits a number may have; no setting needs more.
_MOST_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the form: `choices` of a choice, none of a number; `about` says what it does."""

    name: str
    label: str
    about: str
    choices: Mapping[str, str] | None = None


SETTINGS: tuple[Setting, ...] = (
    Setting("budget", "budget", "token positions one step may hold, padding included"),
    Setting("slots", "slots", "requests that run at once"),
    Setting("mode", "mode", "", {name: mode.summary for name, mode in MODES.items()}),
    Setting("policy", "policy", "", {name: policy.summary for name, policy in POLICIES.items()}),
    Setting(
        "prefix_caching",
        "prefix caching",
        "",
        {
            "off": "every prompt is worked out for itself",
            "on": "prompts that begin alike share their KV blocks",
        },
    ),
    Setting("speed", "speed", "steps a second at most, or max"),
)


def in_force(state: EngineState) -> dict[str, str]:
    """Every setting's value now, as the form writes it."""
    return _written(state.config, state.mode, state.speed)


def pending(state: EngineState) -> dict[str, str]:
    """The values that take effect at the next step; only those that differ from now."""
    wanted = _written(state.pending_config or state.config, state.pending_mode or state.mode, state.speed)
    now = in_force(state)
    return {name: value for name, value in wanted.items() if value != now[name]}


def _written(config: EngineConfig, mode: str, speed: float | None) -> dict[str, str]:
    return {
        "budget": str(config.max_num_batched_tokens),
        "slots": str(config.max_num_seqs),
        "mode": mode,
        "policy": config.policy,
        "prefix_caching": "on" if config.prefix_caching else "off",
        "speed": MAX if speed is None else f"{speed:g}",
    }


class SettingsForm:
    """What a person has changed so far; begins with what is in force or already asked for."""

    def __init__(self, state: EngineState) -> None:
        self._begun = {**in_force(state), **pending(state)}
        self.wanted = dict(self._begun)
        self.at = 0
        #: The chosen number is replaced by the first digit typed, as a selected field is.
        self._is_fresh = True

    @property
    def setting(self) -> Setting:
        """The chosen line."""
        return SETTINGS[self.at]

    def is_changed(self, name: str) -> bool:
        """Whether the form differs from what it began with."""
        return self.wanted[name] != self._begun[name]

    def select(self, by: int) -> None:
        """The line above or below, around the ends."""
        self.at = (self.at + by) % len(SETTINGS)
        self._is_fresh = True

    def change(self, by: int) -> None:
        """One step less or more; the choice before or after."""
        name, value = self.setting.name, self.wanted[self.setting.name]
        if self.setting.choices is not None:
            names = list(self.setting.choices)
            self.wanted[name] = names[(names.index(value) + by) % len(names)]
        elif name == "speed":
            self.wanted[name] = _stepped_speed(value, by)
        else:
            number = int(value) if value.isdigit() else 1
            # A budget is told apart by its size, slots by one more or less.
            stepped = number + by if name == "slots" else (number * 2 if by > 0 else number // 2)
            self.wanted[name] = str(max(1, min(stepped, 10**_MOST_DIGITS - 1)))
        self._is_fresh = True

    def type(self, character: str) -> bool:
        """Write a digit (or `.`, or `m` for max, in the speed); whether it had a place."""
        name = self.setting.name
        if name == "speed" and character == "m":
            self.wanted[name] = MAX
            self._is_fresh = True
            return True
        if name not in _NUMBERS or not (character.isdecimal() or (character == "." and name == "speed")):
            return False
        before = "" if self._is_fresh or self.wanted[name] == MAX else self.wanted[name]
        if len(before) < _MOST_DIGITS:
            self.wanted[name] = before + character
        self._is_fresh = False
        return True

    def erase(self) -> None:
        """Take the last digit away."""
        name = self.setting.name
        if name in _NUMBERS:
            self.wanted[name] = "" if self.wanted[name] == MAX else self.wanted[name][:-1]
            self._is_fresh = False

    def commands(self, state: EngineState) -> list[Command]:
        """What to send so that all of it takes effect; nothing if nothing is changed.

        Raises:
            ConfigError: a value cannot work; one sentence for the user.
        """
        changed = {name: value for name, value in self.wanted.items() if self.is_changed(name)}
        found: list[Command] = []
        config: dict[str, object] = {}
        if "slots" in changed:
            config["max_num_seqs"] = _whole(changed["slots"], "slots")
        if "budget" in changed:
            config["max_num_batched_tokens"] = _whole(changed["budget"], "the budget")
        if "policy" in changed:
            config["policy"] = changed["policy"]
        if "prefix_caching" in changed:
            config["prefix_caching"] = changed["prefix_caching"] == "on"
        if config:
            msgspec.structs.replace(state.pending_config or state.config, **config)
            found.append(Configure(**config))  # type: ignore[arg-type]  # names and types as above
        if "mode" in changed:
            found.append(SetMode(changed["mode"]))
        if "speed" in changed:
            found.append(SetSpeed(_speed(changed["speed"])))
        return found

    def sent(self) -> None:
        """What is wanted has been asked for: from here on it counts as unchanged."""
        self._begun = dict(self.wanted)


def _whole(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ConfigError(f"{name} must be a whole number")
    return int(text)


def _speed(text: str) -> float | None:
    if text == MAX:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError("speed must be a number of steps a second above 0, or max")
    return value


def _stepped_speed(text: str, by: int) -> str:
    values = [*SPEEDS, float("inf")]
    try:
        now = values[-1] if text == MAX else float(text)
    except ValueError:
        now = values[0]
    if by > 0:
        wanted = next((value for value in values if value > now), values[-1])
    else:
        wanted = next((value for value in reversed(values) if value < now), values[0])
    return MAX if wanted == values[-1] else f"{wanted:g}"
