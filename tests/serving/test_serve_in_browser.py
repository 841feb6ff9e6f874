"""The screen in a real browser: a prompt is typed and runs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from chromium import Browser
from served import Seen, Served


def test_a_prompt_is_typed_and_runs_and_programs_end_with_their_pages() -> None:
    with Served() as server, Browser() as browser:
        seen = Seen(browser)
        browser.open(server.url)
        seen.wait_for("type a prompt")
        assert browser.js("document.body.classList.contains('-first-byte')")
        browser.press(*"The cat")
        seen.wait_for("› +The cat")
        browser.press("Enter")
        seen.wait_for(r"A +length +64/64 .*The cat")
        seen.wait_for(r"continuous: 64 steps, 64 of 192 slot")
        assert server.url + "/ws" not in browser.requests  # sockets are no requests; everything else is ours
        assert all(url.startswith((server.url, "data:")) for url in browser.requests)
        assert not browser.complaints
        [program] = server.wait_for_programs(1)
        browser.press("ctrl+q")
        browser.wait_for("getComputedStyle(document.getElementById('ended')).display === 'flex'")
        server.wait_for_programs(0)
        browser.js("document.getElementById('again').click()")
        server.wait_for_programs(1)
        assert server.programs() != [program]
        browser.open("about:blank")
        server.wait_for_programs(0)


@pytest.mark.long
def test_the_real_command_on_the_real_model(default_model_path: Path) -> None:
    program = [
        sys.executable, "-m", "cbtui", "serve", "--port", "0", "--threads", "1", "--raw", "--speed", "max"
    ]  # fmt: skip
    with Served(program=program) as server, Browser() as browser:
        seen = Seen(browser)
        browser.open(server.url)
        seen.wait_for("type a prompt", 120)
        browser.press(*"The capital of France is", "Enter")
        seen.wait_for("Paris", 120)
        assert server.end(signal.SIGINT) == 130
