"""The user's settings file: where it is, what may stand in it, and what is wrong with it, in words.

A TOML file in the user's configuration folder. The command line goes before it, it goes before the
defaults. Reading it is the launch of the screen's business; the headless commands do not, so that what they
print does not depend on whose machine they run on.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: Names a file that is read instead of the one in the user's folder; empty: none is read.
VARIABLE = "CBTUI_SETTINGS"
_NAME = "settings.toml"
#: A settings file is a page; what is larger than this is something else, and not read into memory.
_MOST_BYTES = 2**20
#: Steps a second that can be asked for; more is `max`, and less is not seen to move.
LEAST_SPEED, MOST_SPEED = 0.001, 1e6
THEME_NAMES = ("dark", "light", "high-contrast")


class SettingsError(ValueError):
    """The file cannot be used; one sentence with the file, and the line or the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the file says; None: it says nothing, and the default holds.

    Attributes:
        theme: one of `THEME_NAMES`.
        speed: steps a second at most, as `--speed` takes it: a number or `max`.
        slots, budget, mode, max_tokens: as the options of their names.
        chat: prompts go through the model's chat template.
        history: records of steps kept to go back to.
        stories: finished requests kept.
        keys: binding id to keys, comma-separated; ids are those `?` lists.
    """

    theme: str = "dark"
    speed: str | None = None
    slots: int | None = None
    budget: int | None = None
    mode: str | None = None
    max_tokens: int | None = None
    chat: bool | None = None
    history: int | None = None
    stories: int | None = None
    keys: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key of the file: what it may be, in words, and a check that gives the value or None."""

    wants: str
    check: Callable[[object], object | None]


def _whole(low: int, high: int) -> Callable[[object], object | None]:
    def check(value: object) -> object | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and low <= value <= high else None  # type: ignore[operator]

    return check


def _one_of(*names: str) -> Callable[[object], object | None]:
    return lambda value: value if value in names else None


def _speed(value: object) -> object | None:
    if value == "max":
        return "max"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if is_number and LEAST_SPEED <= value <= MOST_SPEED else None  # type: ignore[operator]


def _flag(value: object) -> object | None:
    return value if isinstance(value, bool) else None


def _entries() -> dict[str, _Entry]:
    from engine.config import SLOT_LIMIT
    from engine.scheduling.modes import MODES

    return {
        "theme": _Entry(" or ".join(map(repr, THEME_NAMES)), _one_of(*THEME_NAMES)),
        "speed": _Entry(
            f'a number of steps a second from {LEAST_SPEED:g} to {MOST_SPEED:,.0f}, or "max"', _speed
        ),
        "slots": _Entry(f"a whole number from 1 to {SLOT_LIMIT}", _whole(1, SLOT_LIMIT)),
        "budget": _Entry("a whole number of 1 or more", _whole(1, 1 << 30)),
        "mode": _Entry(" or ".join(map(repr, MODES)), _one_of(*MODES)),
        "max_tokens": _Entry("a whole number of 1 or more", _whole(1, 1 << 30)),
        "chat": _Entry("true or false", _flag),
        "history": _Entry("a whole number from 100 to 1,000,000", _whole(100, 1_000_000)),
        "stories": _Entry("a whole number from 0 to 1,000,000", _whole(0, 1_000_000)),
    }


def settings_path() -> Path | None:
    """Where the file is, or would be; None: the variable says that none is read."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    from platformdirs import user_config_path

    return user_config_path("cbtui", appauthor=False) / _NAME


def read_settings(path: Path | None) -> Settings:
    """The settings of a file; the defaults if there is none.

    Raises:
        SettingsError: it cannot be read, is not TOML, or has a key or a value that means nothing.
    """
    if path is None:
        return Settings()
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise SettingsError(f"{path} is no settings file: it is larger than {_MOST_BYTES // 2**20} MiB")
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"{path} cannot be read: {reason}") from None
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{path}: lists or tables are nested too deeply") from None
    except ValueError as exc:  # TOML's own error, or a number of thousands of digits
        found = re.search(r"\(at (?:line (\d+), column \d+|end of document)\)", str(exc))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        reason = str(exc)[: found.start()].strip() if found else str(exc)
        raise SettingsError(f"{path}, line {line}: {reason[:1].lower()}{reason[1:]}") from None
    return _checked(path, text, table)


def keep_theme(path: Path, theme: str) -> None:
    """Write a theme into the file, which is made if there is none; all else in it stays as it is.

    Raises:
        SettingsError: the file cannot be read, is wrong already, or cannot be written.
    """
    read_settings(path)
    line = f'theme = "{theme}"'
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        table = re.search(r"^\s*\[", text, re.MULTILINE)
        head, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
        head, found = re.subn(
            r"^(\s*)theme\s*=[^#\n]*?(\s*#.*)?$", rf"\g<1>{line}\g<2>", head, flags=re.MULTILINE
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((head if found else f"{line}\n{head}") + rest, "utf-8")
    except OSError as exc:
        raise SettingsError(f"{path} cannot be written: {exc.strerror}") from None


def _checked(path: Path, text: str, data: dict[str, object]) -> Settings:
    entries = _entries()
    values: dict[str, object] = {}
    for name, value in data.items():
        if name == "keys":
            values["keys"] = _keys(path, text, value)
            continue
        if name not in entries:
            raise SettingsError(
                f"{_place(path, text, name)}: there is no setting {name!r}{_like(name, [*entries, 'keys'])}"
            )
        checked = entries[name].check(value)
        if checked is None:
            raise SettingsError(
                f"{_place(path, text, name)}: {name} must be {entries[name].wants}, not {_shown(value)}"
            )
        values[name] = checked
    return Settings(**values)  # type: ignore[arg-type]  # each was checked above


def _keys(path: Path, text: str, table: object) -> dict[str, str]:
    from cbtui.keymap import KeymapError, check_keymap

    if not isinstance(table, dict):
        raise SettingsError(f"{_place(path, text, 'keys')}: keys must be a table: [keys], then a line a key")
    for name, keys in table.items():
        if not isinstance(keys, str):
            place = _place(path, text, name)
            raise SettingsError(f"{place}: {name} must be keys in quotation marks, not {_shown(keys)}")
    try:
        check_keymap(table)
    except KeymapError as exc:
        raise SettingsError(f"{_place(path, text, exc.id)}: {exc}") from None
    return dict(table)


def _place(path: Path, text: str, name: str) -> str:
    """File and line of a key, found by its name."""
    pattern = re.compile(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*(?:=|\])""")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f"{path}, line {number}"
    return str(path)


def _like(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number so long"
    return text if len(text) <= 60 else text[:59] + "…"
