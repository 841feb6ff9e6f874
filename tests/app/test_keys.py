"""The one table of keys, and the bottom line made from it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import cbtui
from cbtui.keymap import remappable
from cbtui.keys import APP_KEYS, LESSON_KEYS, LEVELS, PROMPT_KEYS, RACE_KEYS, SCREEN_KEYS, Key
from cbtui.keys_shown import in_bottom_line, in_help
from cbtui.looks.pieces import plain
from cbtui.screens.help import HELP_GROUPS
from cbtui.widgets.key_bar import KeyLine, key_lines

ALL = tuple({id(key): key for level in LEVELS for key in level}.values())
SOURCES = Path(cbtui.__file__).parent


def test_every_binding_has_an_id_of_its_own_and_a_tooltip() -> None:
    assert all(count == 1 for count in Counter(key.id for key in ALL).values())
    assert all(key.tooltip for key in ALL)


def test_no_key_is_bound_anywhere_else_than_in_the_table() -> None:
    """So that help, palette and keymap can know of it."""
    others = [path for path in SOURCES.rglob("*.py") if path.name != "keys.py"]
    assert others and not [path for path in others if re.search(r"\bBinding\(", path.read_text("utf-8"))]


def test_every_key_of_the_table_can_be_moved() -> None:
    assert set(remappable()) == {key.id for key in ALL}


def test_no_key_means_two_things_on_one_level() -> None:
    for level in (SCREEN_KEYS, PROMPT_KEYS, APP_KEYS):
        keys = [one for key in level for one in key.keys.split(",")]
        assert len(keys) == len(set(keys))


def test_help_has_a_line_for_every_key_or_for_the_one_it_stands_beside() -> None:
    listed = {words: shown for group in HELP_GROUPS for shown, words in in_help(group)}
    before: Key | None = None
    for key in (*SCREEN_KEYS, *PROMPT_KEYS, *APP_KEYS, *RACE_KEYS, *LESSON_KEYS):
        if key.help == "" and key.joins:
            assert before is not None
            assert (key.shown or key.typing) in listed[before.help or before.tooltip].split()
            continue
        before = key
        if not key.id.startswith("view.tab_") or key.help:
            assert (key.shown or key.typing) in listed[key.help or key.tooltip].split()


def test_help_says_nothing_twice() -> None:
    words = [words for group in HELP_GROUPS for _, words in in_help(group)]
    assert len(words) == len(set(words))
    for group in HELP_GROUPS:
        keys = [shown for shown, words in in_help(group) if "Typing: " not in words]
        assert len(keys) == len(set(keys)), group


def key_line(cells: int, *, is_typing: bool, is_paused: bool) -> KeyLine:
    """The main screen's bottom line, where it has one."""
    keys = in_bottom_line(is_typing=is_typing)
    return key_lines(keys, cells, is_typing=is_typing, is_paused=is_paused)[0]


def test_the_bottom_line_names_only_keys_that_work() -> None:
    typing = plain(key_line(200, is_typing=True, is_paused=False).line)
    single = plain(key_line(200, is_typing=False, is_paused=False).line)
    assert "Esc single keys" in typing and "F5 pause" in typing and "space" not in typing
    assert "/ prompt" in single and "space pause" in single and "F5" not in single


def test_the_bottom_line_says_run_while_paused() -> None:
    assert "space run" in plain(key_line(200, is_typing=False, is_paused=True).line)


@pytest.mark.parametrize("is_typing", [False, True])
@pytest.mark.parametrize("cells", range(24, 200, 7))
def test_the_bottom_line_fits_and_keeps_help_longest(cells: int, is_typing: bool) -> None:
    made = key_line(cells, is_typing=is_typing, is_paused=False)
    text = plain(made.line)
    assert len(text) <= cells and len(made.keys) == len(text)
    if cells >= 40:
        assert "help" in text


def test_two_lines_of_a_small_screen_name_race_lessons_and_the_way_back_in_time() -> None:
    for is_paused in (False, True):
        made = key_lines(in_bottom_line(is_typing=False), 78, 2, is_paused=is_paused)
        text = "\n".join(plain(one.line) for one in made)
        assert len(made) == 2 and all(len(plain(one.line)) <= 78 for one in made)
        for words in ("r race", "l lessons", "[ ] back/forth", "d demo", "m mode", "? help", "q quit"):
            assert words in text


@pytest.mark.parametrize("cells", range(16, 90, 5))
@pytest.mark.parametrize("keys", [RACE_KEYS, LESSON_KEYS])
def test_lines_of_keys_are_never_wider_than_their_place(keys: tuple[Key, ...], cells: int) -> None:
    for num_lines in (1, 2):
        made = key_lines((*keys, *APP_KEYS[:1]), cells, num_lines)
        assert len(made) <= num_lines and all(len(plain(one.line)) <= cells for one in made)
        assert all(len(one.keys) == len(plain(one.line)) for one in made)


def test_both_keys_of_a_pair_go_together() -> None:
    for cells in range(24, 160):
        text = plain(key_line(cells, is_typing=False, is_paused=False).line)
        assert ("- + slots" in text) == ("slots" in text)


def test_each_cell_belongs_to_its_key() -> None:
    made = key_line(200, is_typing=False, is_paused=False)
    text = plain(made.line)
    key = made.keys[text.index("step")]
    assert key is not None and key.action == "step"
    assert in_bottom_line(is_typing=False)
