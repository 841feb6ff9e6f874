from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cbtui.looks.tokens import clip, clip_left, prose, spans, visible


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b" the", "·the"),
        (b"\n\t\r", "⏎⇥␍"),
        (b"\x1b[2J\x07", "␛[2J␇"),
        (b"\xe2\x80", "⟨E2 80⟩"),
        (b"a\xffb", "a⟨FF⟩b"),
        (b"\x80 caf\xc3\xa9", "⟨80⟩·café"),
        ("日本".encode(), "日本"),
        ("👍".encode(), "👍"),
        ("\u202eevil\u2066".encode(), "⟨U+202E⟩evil⟨U+2066⟩"),
        ("\u0301a".encode(), "◌\u0301a"),
        ("a\u0301".encode(), "a\u0301"),
        ("שלום".encode(), "שלום"),
        ("a\u200db\u00a0c".encode(), "a⟨U+200D⟩b⍽c"),
        (b"[bold red]x[/]", "[bold·red]x[/]"),
        ("\x85\u2028\ufeff".encode(), "⟨U+0085⟩⟨U+2028⟩⟨U+FEFF⟩"),
        ("👍🏽".encode(), "👍⟨U+1F3FD⟩"),
        (b"", "∅"),
    ],
)
def test_a_token_shows_what_it_is(data: bytes, shown: str) -> None:
    assert visible(data) == shown


@given(st.binary(max_size=12) | st.text(max_size=8).map(lambda text: text.encode("utf-8", "replace")))
def test_no_token_can_move_the_cursor_or_turn_the_line_around(data: bytes) -> None:
    shown = visible(data)
    assert shown and not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    assert unicodedata.category(shown[0])[0] != "M"
    assert "".join(span.text for span in spans(data)) == shown


@given(st.text(max_size=20), st.integers(0, 12))
def test_clipped_text_takes_no_more_cells_than_asked(text: str, cells: int) -> None:
    shown = prose(text)
    assert cell_len(clip(shown, cells)) <= cells
    assert cell_len(clip_left(shown, cells)) <= cells


def test_prose_keeps_spaces_and_shows_what_would_act_on_the_terminal() -> None:
    assert prose("a b\n\x1b[2J\u202e 👩\u200d🚀 👍🏽") == "a b⏎␛[2J⟨U+202E⟩ 👩🚀 👍"


def test_wide_characters_are_cut_whole() -> None:
    assert clip("日本語", 5) == "日本…"
    assert clip_left("日本語", 4) == "…語"
