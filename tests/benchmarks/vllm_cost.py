"""What recording costs a vLLM: a real one's steps with the recorder and without, in turns, and the
recorder's hooks beside the work of vLLM's scheduler, for few and for many running sequences."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from engine.attach.vllm_command import serve_environment
from tests.benchmarks.children import Child, child, followed
from tests.benchmarks.report import Line, Report, in_turns
from tests.benchmarks.workload import SLOTS, jobs, model_folder

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("CBTUI_PEER_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))
#: At most: a step with the recorder / without; the recorder's share of a step's time.
MOST = 1.02
MOST_SHARE = 2.0
#: Microseconds of the hooks at most, by running sequences: 2 % of a GPU's step of 5 ms, and of 10 ms.
MOST_HOOKS = {3: 100.0, 64: 100.0, 256: 200.0}
#: Outputs of one run, beside the tutorial's: short runs in many turns, for one per cent is to be told apart.
RUN_SCALE = 0.1
RUNS_A_ROUND = 3
STEPS_A_ROUND = 100


def vllm_cost(report: Report, rounds: int, scale: float, threads: tuple[int, ...]) -> None:
    """Both, if vLLM is there."""
    if not PYTHON.exists():
        report.leave_out(
            "vLLM's recorder is left out: there is no .venv-peers (make test-peers makes it, 3.4 GB)"
        )
        return
    with tempfile.TemporaryDirectory() as name:  # a socket's path has to be short
        socket = f"unix:{name}/run/vllm.sock"
        for number in threads:
            _steps(report, socket, rounds, scale, number)
        _hooks(report, socket, rounds)


def _vllm(script: str, socket: str, threads: int, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """A command in vLLM's environment, and the variables it needs."""
    environment = serve_environment(socket) | {"OMP_NUM_THREADS": str(threads)}
    return [str(PYTHON), str(Path(__file__).with_name(script)), *arguments], environment


# -- a real vLLM -----------------------------------------------------------------------------------


def _steps(report: Report, socket: str, rounds: int, scale: float, threads: int) -> None:
    asked = {
        "model": model_folder(),
        "engine": {"max_model_len": 1024, "max_num_seqs": SLOTS, "dtype": "float32"},
    }
    work = [(job.prompt, job.num_tokens) for job in jobs(RUN_SCALE * scale)]
    with child(*_vllm("vllm_run_child.py", socket, threads)) as vllm:
        vllm.ask(**asked)

        def read() -> dict[str, Any]:
            with followed(socket) as seen:
                vllm.ask(jobs=work[:1], recorded=True)  # a reader that comes reads the tokenizer first
                before = seen()
                run = vllm.ask(jobs=work, recorded=True)
                return run | {"reader_s": seen().since(before).cpu_s}

        contenders = {
            "plain": lambda: vllm.ask(jobs=work, recorded=False),
            "unread": lambda: vllm.ask(jobs=work, recorded=True),
            "read": read,
        }
        runs = in_turns(contenders, RUNS_A_ROUND * rounds, warm=1)
    words = {"unread": "nobody reading", "read": "one reader"}
    for name, word in words.items():
        _step_lines(report, f"{word}, {threads} threads", runs[name], runs["plain"])


def _step_lines(report: Report, what: str, runs: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
    if lost := sum(run["lost"] + run["faults"] for run in runs):
        raise RuntimeError(f"the recorder lost {lost} lines or had faults")
    ratio = statistics.median(a["step_s"] / b["step_s"] for a, b in zip(runs, plain, strict=True))
    ms = [1e3 * statistics.median(run["step_s"] for run in some) for some in (runs, plain)]
    note = f"{ms[0]:.2f} / {ms[1]:.2f} ms a step"
    if "reader_s" in runs[0]:
        beside = 1e3 * statistics.median(run["reader_s"] / run["steps"] for run in runs)
        note += f"; the reader itself, beside it: {beside:.2f} ms of processor time"
    report.add(Line(f"a vLLM's step recorded / not, {what}", ratio, target=MOST, at_most=True, note=note))
    hooks, thread = (
        1e3 * statistics.median(run[name] / run["steps"] for run in runs) for name in ("hooks_s", "thread_s")
    )
    report.add(
        Line(
            f"of that vLLM's step the recorder's, {what}",
            100 * (hooks + thread) / ms[1],
            "%",
            MOST_SHARE,
            True,
            f"hooks {hooks:.3f} ms, processor time of its thread {thread:.3f} ms",
        )
    )


# -- its scheduler alone ---------------------------------------------------------------------------


def _hooks(report: Report, socket: str, rounds: int) -> None:
    with child(*_vllm("vllm_hooks_child.py", socket, 1, model_folder())) as vllm:
        for sequences, most in MOST_HOOKS.items():
            vllm.ask(sequences=sequences)
            _hook_line(report, f"{sequences} running, nobody reading", _measured(vllm, rounds), most)
            with followed(socket) as seen:
                figures = _measured(vllm, rounds)
                if not seen().steps:
                    raise RuntimeError("the reader saw no steps")
            _hook_line(report, f"{sequences} running, one reader", figures, most)


def _measured(vllm: Child, rounds: int) -> dict[str, Any]:
    vllm.ask(steps=5)  # what a reader that has just come is told first
    return vllm.ask(steps=STEPS_A_ROUND * rounds)


def _hook_line(report: Report, what: str, figures: dict[str, Any], most: float) -> None:
    if figures["faults"]:
        raise RuntimeError(f"the recorder had {figures['faults']} faults")
    note = (
        f"vLLM's own schedule() + update_from_output() {figures['plain']:.0f} µs, with the recorder "
        f"{figures['recorded']:.0f} µs; its thread {figures['thread']:.0f} µs"
    )
    report.add(Line(f"the recorder's hooks a step, {what}", figures["hooks"], "µs", most, True, note))
