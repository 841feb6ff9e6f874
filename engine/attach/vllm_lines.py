"""The lines a recording vLLM writes, as structs. What each means is said where they are made:
`engine/attach/in_vllm/cbtui_vllm/lines.py`.
"""

from __future__ import annotations

import msgspec

#: The newest version of the lines this can read.
VERSION = 2


class _Line(msgspec.Struct, frozen=True, tag_field="k"):
    """A line; `k` says which."""


class Header(_Line, frozen=True, tag="header"):
    """A server's facts, the first line of every stream. `t` and `wall` are one moment on two clocks.

    `max_active` and `max_scheduled`: the slots and tokens its scheduler keeps to in a step; 0: not told.
    """

    cbtui_vllm: int
    model: str
    t: float
    wall: float
    pid: int
    vllm: str = ""
    tried: tuple[str, ...] = ()
    path: str = ""
    tokenizer: str = ""
    dtype: str = ""
    device: str = ""
    block_size: int = 16
    num_blocks: int = 0
    groups: int = 1
    max_model_len: int = 2048
    max_num_seqs: int = 1
    max_num_batched_tokens: int = 2048
    max_active: int = 0
    max_scheduled: int = 0
    chunked_prefill: bool = True
    async_scheduling: bool = False
    policy: str = "fcfs"
    prefix_caching: bool = False
    speculative: bool = False
    drafts: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    is_rank: bool = False
    rank: int = 0


class Arrived(_Line, frozen=True, tag="a"):
    """A request; in a keyframe `at`, `out`, `on` and `table` say how far it is.

    `len` stands for `prompt` where the ids are not told (yet).
    """

    t: float
    r: int
    id: str
    len: int
    max: int
    prompt: tuple[int, ...] = ()
    priority: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    at: int = 0
    out: tuple[int, ...] = ()
    on: bool = False
    table: tuple[int, ...] = ()


class Standing(Arrived, frozen=True, tag="one"):
    """A request of the keyframe that follows."""


class Prompt(_Line, frozen=True, tag="p"):
    """The prompt of a request that came without it."""

    r: int
    prompt: tuple[int, ...]


class Chunk(_Line, frozen=True, tag="c"):
    """A request goes on with another chunk of its prompt. `prompt`: all of it so far."""

    t: float
    r: int
    prompt: tuple[int, ...]
    max: int


class Key(_Line, frozen=True, tag="key"):
    """Everything alive before step `n`.

    Attributes:
        requests: those of the lines before it, put together.
        flying: outputs still to come of steps before it.
    """

    n: int
    t: float
    requests: tuple[Arrived, ...] = ()
    waiting: tuple[tuple[int, str], ...] = ()
    wait: int = 0
    flying: int = 0


class Scheduled(_Line, frozen=True, tag="s"):
    """A step as it was scheduled. `rows` is empty in a line where they go on from the step before's.

    `drafts`: of the tokens of a row, by request, the last ones, which are drafts; `UNKNOWN_TOKEN` where the
    scheduler does not know them.
    """

    n: int
    t: float
    d: float
    run: int
    wait: int
    rows: tuple[tuple[int, int, int], ...] = ()
    drafts: dict[int, tuple[int, ...]] = {}
    tables: dict[int, tuple[int, ...]] = {}
    more: dict[int, tuple[int, ...]] = {}
    pre: tuple[int, ...] = ()
    reset: tuple[int, ...] = ()
    free: int | None = None
    held: int = 0
    pause: str = ""
    q: tuple[tuple[int, str], ...] | None = None


class Output(_Line, frozen=True, tag="o"):
    """What came of a step. `tok` instead of `out`: a token for each of its rows. `rej`: how many of a row's
    drafts were rejected, where some were.
    """

    n: int
    t: float
    d: float
    out: tuple[tuple[int, tuple[int, ...]], ...] = ()
    tok: tuple[int, ...] = ()
    rej: tuple[tuple[int, int], ...] = ()
    free: int = 0
    end: tuple[tuple[int, str], ...] = ()
    order: tuple[int, ...] | None = None


class Ended(_Line, frozen=True, tag="f"):
    """Requests ended from outside."""

    t: float
    end: tuple[tuple[int, str], ...]


class Cost(_Line, frozen=True, tag="cost"):
    """What recording has cost since the start."""

    t: float
    steps: int
    hooks_s: float
    thread_s: float
    lost: int
    faults: int


class Lost(_Line, frozen=True, tag="lost"):
    """So many lines are missing here."""

    n: int


class Fault(_Line, frozen=True, tag="fault"):
    """A fault of the recorder itself."""

    n: int
    what: str


class Over(_Line, frozen=True, tag="over"):
    """Nothing more will come, and why."""

    what: str


Line = (
    Header
    | Arrived
    | Standing
    | Prompt
    | Chunk
    | Key
    | Scheduled
    | Output
    | Ended
    | Cost
    | Lost
    | Fault
    | Over
)

_decoder = msgspec.json.Decoder(Line)
_START = b'{"k":"header","cbtui_vllm":'


def is_header(line: bytes) -> bool:
    """Whether a first line is a recording vLLM's."""
    return line.startswith(_START)


def decode(line: bytes) -> Line:
    """A line.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it is none.
    """
    return _decoder.decode(line)
