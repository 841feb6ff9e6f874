"""The lock installs anywhere: plain versions only, everything the project asks for, and nothing of CUDA."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "requirements.lock").read_text().splitlines()
PINS = [line for line in LINES if line and not line.startswith("#")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: Everything the project asks for with all its extras, but those extras themselves.
WANTED = [
    text
    for text in (*PROJECT["dependencies"], *chain.from_iterable(EXTRAS.values()))
    if not text.startswith("cbtui[")
]


@pytest.mark.parametrize("line", PINS)
def test_each_line_is_a_plain_pin(line: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][0-9a-z.]*", line)
    assert not re.match(r"nvidia|triton|cuda", line, re.IGNORECASE)


def test_nothing_is_pinned_twice() -> None:
    names = [canonicalize_name(line.partition("==")[0]) for line in PINS]
    assert len(names) == len(set(names))


def test_development_takes_every_extra() -> None:
    [own] = [Requirement(text) for text in EXTRAS["dev"] if text.startswith("cbtui[")]
    assert own.extras == set(EXTRAS) - {"dev"}


def test_torch_and_textual_are_the_tested_ones() -> None:
    assert {"torch==2.13.0", "textual==8.2.8"} <= set(PINS)


@pytest.mark.parametrize("text", WANTED)
def test_the_lock_satisfies_the_project_file(text: str) -> None:
    versions = {
        canonicalize_name(name): version for name, _, version in (pin.partition("==") for pin in PINS)
    }
    wanted = Requirement(text)
    assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)])
