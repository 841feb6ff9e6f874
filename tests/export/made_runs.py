"""Recorded runs for the tests of the exporters: real ones, and made ones whose texts want out."""

from __future__ import annotations

from pathlib import Path

from cbtui.export.run import RecordedRun, recorded_run
from engine.attach.recordings import read_recording
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import VOCAB_SIZE, FakeRunner
from engine.live.commands import PromptRequest
from engine.runner import EncodedPrompt
from engine.session import drain, submit
from engine.stream.records import SCHEMA_VERSION, Record, TraceHeader

DATA = Path(__file__).parents[1] / "data"
TRACES = (
    "static",
    "continuous",
    "continuous-padded",
    "switched",
    "preempted",
    "vllm-tutorial",
    "vllm-pressed",
    "vllm-drafts",
)
#: Texts that would be markup, script, an attribute's end, a terminal's orders, or read backwards.
HOSTILE = (
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "</script><svg onload=window.pwned=1>]]>&amp;{{data}}",
    "\x1b]0;title\x07\x1b[2J\x9b31m",
    "abc\u202eelif\u2066\u200b\u0000\ufffe",
    "=HYPERLINK(1)\r\n'; DROP --",
    "שלום עולם e\u0301 👩‍👩‍👧 \u0301",
)


def recorded(mode: str) -> RecordedRun:
    name = f"attach/{mode}.jsonl" if mode.startswith("vllm") else f"trace-{mode}.jsonl"
    trace = read_recording(DATA / name)
    return recorded_run(trace.header, trace.records)


def token_bytes(token: int) -> bytes:
    """Each token is a hostile text, or a piece of one that is no whole character."""
    data = HOSTILE[token % len(HOSTILE)].encode()
    return data if token % 3 else data[: token % 5 + 1]


def made_records(
    prompts: list[tuple[str, int, int]], *, epoch: int = 1, **config: object
) -> tuple[TraceHeader, list[Record]]:
    """Run (text, prompt tokens, output tokens) on the fake model; the header's names are hostile, too."""
    runner = FakeRunner()
    engine = Engine(
        EngineConfig(**config),  # type: ignore[arg-type]
        runner,
        runner.info,
        token_bytes=token_bytes,
        n_top=3,
        epoch=epoch,
    )
    runner.start()
    for place, (text, size, made) in enumerate(prompts):
        ids = [(place * 101 + n * 7) % (VOCAB_SIZE - 1) for n in range(size)]
        submit(engine, PromptRequest(prompt=text, max_tokens=made, ignore_eos=True), EncodedPrompt(ids))
    header = TraceHeader(SCHEMA_VERSION, HOSTILE[0], device=HOSTILE[1], machine=HOSTILE[2])
    return header, list(drain(engine))


def hostile_run(**config: object) -> RecordedRun:
    header, records = made_records(
        [(text, 5 + 9 * n, 3 + 2 * n) for n, text in enumerate(HOSTILE)],
        **{"max_num_seqs": 3, **config},
    )
    return recorded_run(header, records)


def crowded_run() -> RecordedRun:
    """So few KV blocks that requests must give way and are fed again, in chunks."""
    header, records = made_records(
        [(f"request {n}", 20 + n, 30) for n in range(6)],
        max_num_seqs=4,
        num_blocks=10,
        block_size=8,
        max_num_batched_tokens=24,
        max_model_len=72,
        mode="chunked",
    )
    return recorded_run(header, records)
