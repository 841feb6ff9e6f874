"""One run of the tutorial's six requests, with the real screen or without; says how long the steps took.

    python -m tests.benchmarks.screen_child screen|none|calm|crowd THREADS OUT.json

`screen`: the real app at full speed on the terminal this process has. `none`: the same engine loop in the
main thread and nothing else. `calm`: the app on a fake model with 8 slots, four steps a second. `crowd`:
the app on a fake model with 64 slots and 500 waiting, 20 steps a second, so every frame draws a new step.
Elapsed seconds are from the end of step 1 to the end of the last step.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from pathlib import Path

from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions, runner_spec
from engine.config import EngineConfig
from engine.fake import FakeRunner
from engine.live.commands import Close, PromptRequest, Submit
from engine.workload import tutorial_workload

#: Slots, requests, output tokens of each, steps a second, by kind.
FAKE = {"calm": (8, 8, 400, 4.0), "crowd": (64, 564, 200, 20.0)}
FAKE_STEPS = 80


class TimedPace(Pace):
    """Keeps what each frame cost."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[float] = []

    def is_due(self) -> bool:
        due = super().is_due()
        if due:
            self.frames.append(self.frame_s)
        return due


def main() -> None:
    """Run once and write the figures."""
    kind, threads, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    options, work = LaunchOptions(runner=runner_spec(threads=threads), speed=None), tutorial_workload()
    link = Link()
    driver = LoopDriver(options, link)
    if kind in FAKE:
        slots, requests, tokens, speed = FAKE[kind]
        config = EngineConfig(max_num_seqs=slots, num_blocks=4096)
        options = LaunchOptions(config=config, speed=speed)
        work = [PromptRequest(prompt=f"prompt number {i}", max_tokens=tokens) for i in range(requests)]
        driver = LoopDriver(options, link, make_runner=lambda options: FakeRunner(delay_s=0.005))
    pace = TimedPace()
    times: dict[str, float] = {}
    frames: list[float] = []

    def watch() -> None:
        while link.mailbox.latest().model is None:
            time.sleep(0.01)
        link.commands.put(Submit(tuple(work)))
        while True:
            state = link.mailbox.latest()
            if state.step >= 1 and "first" not in times:
                times["first"], times["first_step"] = time.perf_counter(), state.step
                pace.frames.clear()
            if state.step and (state.status == "idle" or (kind in FAKE and state.step >= FAKE_STEPS)):
                break
            time.sleep(0.002)
        times["last"], times["last_step"] = time.perf_counter(), state.step
        frames.extend(pace.frames)
        link.commands.put(Close())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    if kind != "none":
        from cbtui.app import CbtuiApp

        app = CbtuiApp(link, options, driver=driver, pace=pace)
        threading.Thread(target=lambda: (watcher.join(), app.call_from_thread(app.exit)), daemon=True).start()
        app.run()
    else:
        driver.run(lambda: False)
        watcher.join()
    driver.close()
    frames_ms = sorted(1000 * frame for frame in frames)
    out.write_text(
        json.dumps(
            {
                "steps_per_s": (times["last_step"] - times["first_step"]) / (times["last"] - times["first"]),
                "frame_ms_median": statistics.median(frames_ms) if frames_ms else 0.0,
                "frame_ms_p95": frames_ms[int(0.95 * len(frames_ms))] if frames_ms else 0.0,
                "frames": len(frames_ms),
            }
        )
    )


if __name__ == "__main__":
    main()
