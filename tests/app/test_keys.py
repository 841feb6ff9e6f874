"""The one table of keys, and the bottom line made from it."""

from __future__ import annotations

from collections import Counter

import pytest

from cbtui.keys import (
    APP_KEYS,
    CURSOR_KEY,
    PALETTE_KEY,
    PROMPT_KEYS,
    SCREEN_KEYS,
    TAB_KEY,
    in_bottom_line,
    in_help,
)
from cbtui.looks.pieces import plain
from cbtui.screens.help import HELP_GROUPS
from cbtui.widgets.key_bar import key_line

ALL = (*SCREEN_KEYS, *PROMPT_KEYS, *APP_KEYS)


def test_every_binding_has_an_id_of_its_own_and_a_tooltip() -> None:
    assert all(count == 1 for count in Counter(key.id for key in ALL).values())
    assert all(key.tooltip for key in ALL if not key.id.startswith("view.tab_"))


def test_no_key_means_two_things_on_one_level() -> None:
    for level in (SCREEN_KEYS, PROMPT_KEYS, APP_KEYS):
        keys = [one for key in level for one in key.keys.split(",")]
        assert len(keys) == len(set(keys))


def test_help_lists_every_key_once() -> None:
    listed = [words for group in HELP_GROUPS for _, words in in_help(group)]
    every = (*ALL, TAB_KEY, CURSOR_KEY, PALETTE_KEY)
    assert sorted(listed) == sorted(key.tooltip for key in every if key.tooltip)


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
