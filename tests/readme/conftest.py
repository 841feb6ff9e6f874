"""The command line on a fake model, as the tests of its own have it."""

from tests.cli.conftest import cbtui

__all__ = ["cbtui"]
