"""The pictures are the same in an environment full of odd settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ODD = {
    "NO_COLOR": "1",
    "COLORTERM": "no",
    "TERM": "vt100",
    "COLUMNS": "37",
    "LINES": "11",
    "LANG": "tr_TR.ISO-8859-9",
    "LC_ALL": "C",
    "TZ": "Pacific/Chatham",
    "TEXTUAL_THEME": "dracula",
    "TEXTUAL_COLOR_SYSTEM": "standard",
    "TEXTUAL_FILTERS": "dim",
    "TEXTUAL_DIM_FACTOR": "10",
    "TEXTUAL_FPS": "7",
    "TEXTUAL_ANIMATIONS": "full",
    "TEXTUAL_SMOOTH_SCROLL": "0",
    "TEXTUAL_PRESS": "f1",
}


def test_odd_environments_leave_no_mark_in_the_pictures(request: pytest.FixtureRequest) -> None:
    """Pictures of three states and sizes, compared in another process."""
    if request.config.option.update_snapshots:
        pytest.skip("the pictures are being taken anew")
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header",
            "tests/snapshots/test_snapshots.py",
            "-k", "paused_mid_prefill or idle_with_the_results or (tab_at and 5) or empty",
        ],
        cwd=ROOT,
        env={**os.environ, **ODD, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
