"""What the screen costs the engine: steps/s with it, written to a pseudo-terminal of 160×50, and without."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from tests.benchmarks.report import Line, Report

SIZE = (50, 160)
#: Steps/s with the screen / without, at least, by threads: one, or as many as there are cores.
LEAST = {1: 0.95, 2: 0.85}


def screen_cost(report: Report, rounds: int, threads: tuple[int, ...]) -> None:
    """Interleaved runs of the tutorial's six requests in mode continuous at full speed."""
    for number in threads:
        ratios, frames, tails = [], [], []
        for turn in range(rounds):
            order = ("screen", "none") if turn % 2 else ("none", "screen")
            result = {kind: _run(kind, number) for kind in order}
            ratios.append(result["screen"]["steps_per_s"] / result["none"]["steps_per_s"])
            frames.append(result["screen"]["frame_ms_median"])
            tails.append(result["screen"]["frame_ms_p95"])
        what = f"steps/s with the screen / without, {number} thread{'s' if number > 1 else ''}"
        report.add(Line(what, statistics.median(ratios), target=LEAST.get(number)))
        note = f"p95 {statistics.median(tails):.1f} ms; every frame draws a new step"
        report.add(Line("CPU of a frame, 3 slots, median", statistics.median(frames), "ms", 10.0, True, note))


def frames_and_start(report: Report) -> None:
    """CPU of a frame where little changes and where everything does, and how soon the screen is up."""
    calm, crowd = _run("calm", 1), _run("crowd", 1)
    for what, result, most in (
        ("8 slots, little changes", calm, 5.0),
        ("64 slots, 500 waiting, all changes", crowd, 25.0),
    ):
        note = f"p95 {result['frame_ms_p95']:.1f} ms"
        report.add(Line(f"CPU of a frame, {what}, median", result["frame_ms_median"], "ms", most, True, note))
    report.add(Line("first picture after the command", _first_picture_s(), "s", 1.0, True, "median of 5"))


def _first_picture_s() -> float:
    times = []
    for _ in range(5):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        begun = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "cbtui", "launch"], stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )  # fmt: skip
        os.close(slave)
        said = b""
        while b"Slots" not in said:
            said += os.read(master, 1 << 16)
        times.append(time.perf_counter() - begun)
        child.terminate()
        while child.poll() is None:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    os.read(master, 1 << 16)
                except OSError:
                    break
        child.wait()
        os.close(master)
    return statistics.median(times)


def _run(kind: str, threads: int) -> dict[str, float]:
    """One child on a terminal of its own, whose output is read and thrown away."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.screen_child", kind, str(threads), str(out)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )
        os.close(slave)
        said = b""
        while child.poll() is None:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    said = (said + os.read(master, 1 << 16))[-4000:]
                except OSError:  # the terminal is gone with its last process
                    break
        child.wait()
        os.close(master)
        if not out.exists():
            raise RuntimeError(f"the {kind} run failed: {said.decode(errors='replace')[-2000:]}")
        return dict(json.loads(out.read_text()))
