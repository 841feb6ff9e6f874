"""The command line in this process, as in its own tests."""

from tests.cli.conftest import cbtui

__all__ = ["cbtui"]
