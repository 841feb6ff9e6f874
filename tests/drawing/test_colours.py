from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbtui.looks.colours import (
    SHAPE_CONTRAST,
    TEXT_CONTRAST,
    badge_content_style,
    badge_style,
    contrast,
    ink_style,
    shape_colour,
    text_on,
)
from cbtui.telling.naming import PALETTE, Badge

colours = st.integers(0, 0xFFFFFF).map(lambda value: f"#{value:06x}")


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#123456", "#123456") == 1


@pytest.mark.parametrize("colour", PALETTE)
def test_every_badge_is_legible(colour: str) -> None:
    assert contrast(text_on(colour), colour) >= TEXT_CONTRAST
    style = badge_style(Badge("A", colour))
    assert style == badge_style(colour) and style.bold
    assert badge_content_style(colour).background is not None


@given(colours)
def test_black_or_white_is_legible_on_any_ground(ground: str) -> None:
    assert contrast(text_on(ground), ground) >= TEXT_CONTRAST


@given(colours, colours)
def test_shapes_stand_out_from_any_background(colour: str, background: str) -> None:
    assert contrast(shape_colour(colour, background), background) >= SHAPE_CONTRAST


@given(colours, colours)
def test_a_colour_is_used_as_text_only_where_it_is_legible(colour: str, background: str) -> None:
    is_legible = contrast(colour, background) >= TEXT_CONTRAST
    assert (ink_style(colour, background).color is not None) == is_legible


def test_a_colour_has_six_digits() -> None:
    with pytest.raises(ValueError, match="rrggbb"):
        contrast("red", "#ffffff")
