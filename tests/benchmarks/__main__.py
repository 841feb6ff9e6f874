"""`make bench`: every speed target with its measured value, beside transformers and the tutorial's loop.

    make bench                              all parts, three rounds (half an hour on two cores)
    make bench PARTS=step,peers ROUNDS=1    some of them, once
    make bench PARTS=attach                 what attach costs a server; vLLM where make test-peers made one
    make bench SCALE=0.1                    outputs a tenth as long: a quick look, prompts weigh more
    make bench JSON=bench.json              the numbers as data too
    make bench THREADS=1 CPU=1              processor time: for a machine that others use too

Times are of one machine at one time, so contenders run in turns and ratios are taken round by round. A
machine that does something else at the same time makes all of them wrong, most of all with more than
one thread.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from tests.benchmarks.attach import attach
from tests.benchmarks.parts import Effort, modes, pages, peers, start, step
from tests.benchmarks.quality import quality
from tests.benchmarks.report import Report, machine, use_cpu_time
from tests.benchmarks.scale import scale
from tests.benchmarks.screen import frames_and_start, screen_cost

PARTS: dict[str, Callable[[Report, Effort], None]] = {
    "start": start,
    "step": step,
    "pages": pages,
    "peers": peers,
    "modes": modes,
    "screen": lambda report, effort: screen_cost(report, effort.rounds, effort.threads),
    "frames": lambda report, _: frames_and_start(report),
    "scale": lambda report, _: scale(report),
    "types": lambda report, _: quality(report),
    "attach": attach,
}


def main() -> None:
    """Run the parts asked for and print the table."""
    parser = argparse.ArgumentParser(description="cbtui's speed targets, measured")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of output lengths")
    parser.add_argument("--threads", default="2,1", help="numbers of torch threads")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument(
        "--cpu", action="store_true", help="processor time, not elapsed: one thread on a busy machine"
    )
    options = parser.parse_args()
    names = [name.strip() for name in options.parts.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(PARTS)):
        parser.error(f"no part called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    effort = Effort(options.rounds, options.scale, tuple(int(n) for n in options.threads.split(",")))
    if options.cpu:
        use_cpu_time()
    kind = "processor time" if options.cpu else "elapsed time"
    report = Report(machine() | {"rounds": f"{effort.rounds} rounds, {kind}"})
    for name in names:
        print(f"{name} …", flush=True)
        PARTS[name](report, effort)
        if options.json is not None:
            options.json.write_text(json.dumps(report.as_data(), indent=1) + "\n", encoding="utf-8")
    report.print()


if __name__ == "__main__":
    main()
