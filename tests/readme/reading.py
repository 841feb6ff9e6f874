"""The README, by its headings and its pieces of code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    assert found, f"the README has no section {heading!r}"
    return found[1]


def code(heading: str, language: str = "python") -> list[str]:
    """The pieces of code of a language under a heading, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.DOTALL | re.MULTILINE)
