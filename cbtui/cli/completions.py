"""What the shell offers for the values of options. Imports nothing before it is asked."""

from __future__ import annotations


def modes() -> list[str]:
    """Ways to batch."""
    from engine.scheduling.modes import MODES

    return list(MODES)


def policies() -> list[str]:
    """Orders of entry."""
    from engine.scheduling.policies import POLICIES

    return list(POLICIES)


def devices() -> list[str]:
    """Where a model may run."""
    from cbtui.options import DEVICES

    return list(DEVICES)


def dtypes() -> list[str]:
    """Number types of a model."""
    from cbtui.options import DTYPES

    return list(DTYPES)


def themes() -> list[str]:
    """Colours of the screen."""
    from cbtui.settings import THEME_NAMES

    return list(THEME_NAMES)
