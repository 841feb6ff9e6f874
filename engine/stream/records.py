"""The stream of immutable records an engine leaves: one a step, and one for changes between steps.

Recording, replay, the comparison of modes, metrics, tests and every widget are readers of this one
stream. Struct fields are JSON keys of a trace file, so renaming one is a new schema version.
Times are seconds on the engine clock, which stands still while the engine is paused, idle or held back.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.step.plan import Layout, SegmentKind
from engine.stream.drafts import Drafts, Fate

#: 2 has attention windows, which free KV blocks hold a prefix, and observed records; 3 has drafts. Traces of
#: 1 and 2 are read.
SCHEMA_VERSION = 3
#: Stands for a token whose id an observed server does not tell. Ids below it number tokens whose text is
#: known though their id is not: `Events.tokens` has their bytes, as of any other.
UNKNOWN_TOKEN = -1
#: Stands in a block table where a sliding window has left a block, which was given back.
NO_BLOCK = -1
#: Steps after which a record says again which free blocks hold a prefix, though they are the same.
CACHED_RUNS_EVERY = 256
#: Waiting requests a record names; the rest are only counted, so its cost does not grow with the queue.
WAITING_SHOWN = 64
#: Two candidates whose log probabilities are closer than this are a near tie in float32: rounding, which
#: depends on the shape of the batch, may choose either.
NEAR_TIE = 1e-3


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where records come from that this engine did not make, and what in them is not the source's own word.

    A reader who shows one of these facts says so. The names are `FACTS`; each comes with a reason in half
    a sentence, for a person.

    Attributes:
        engine: what kind of server it is: `llama.cpp server`, `vLLM`, …
        address: where it was found; never with credentials in it.
        inferred: facts that follow from others it does tell.
        absent: facts it does not tell: what stands in their fields means nothing.
        no_modes: modes of this engine that it does not have, or not while it runs.
    """

    engine: str
    address: str = ""
    inferred: tuple[tuple[str, str], ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    no_modes: tuple[tuple[str, str], ...] = ()

    def why_inferred(self, fact: str) -> str:
        """Why a fact is inferred; empty: it is not."""
        return dict(self.inferred).get(fact, "")

    def why_absent(self, fact: str) -> str:
        """Why a fact is not there; empty: it is."""
        return dict(self.absent).get(fact, "")

    def why_not(self, mode: str) -> str:
        """Why it cannot be switched to a mode; empty: nothing is known against it."""
        return dict(self.no_modes).get(mode, "")


#: What a source may have to infer, or not know at all. `steps`: where one ends and the next begins, and
#: `times` when; `row`: the order of sequences in it; `requests`: who is in a step at all; `tokens`: how many
#: one fed; `prompt_tokens`, `output_tokens`, `drafts`: their ids (counts are known); `blocks`: block tables;
#: `kv`: the pool's size and use; `waiting`: how many wait; `waiting_requests`: which, and why; `finish`: why
#: and when a request ended; `ranks`: what the other ranks of a data-parallel server do.
FACTS = (
    "steps",
    "times",
    "row",
    "mask",
    "requests",
    "tokens",
    "slots",
    "prompt_tokens",
    "output_tokens",
    "logprobs",
    "drafts",
    "max_tokens",
    "blocks",
    "kv",
    "budget",
    "waiting",
    "waiting_requests",
    "finish",
    "mode",
    "ranks",
)


class Segment(msgspec.Struct, frozen=True):
    """The tokens of one sequence in a step. The mask follows from these (`mask.py`).

    Attributes:
        request_id, slot, kind: whose, in which lane, and whether it is prefill, decode or dead work.
        row, q_start, q_len: its columns in the step's tensor.
        kv_start, kv_len: its keys on the mask's key axis; the last `q_len` of them are new.
        position: place in its own sequence of its first token.
        token_ids: the `q_len` tokens fed.
        block_ids: its block table in this step, `NO_BLOCK` where a window has left one.
        num_prompt_left: prompt tokens still to be fed after this step (a prefill cut into pieces).
        sampled: the token chosen after its last one (that is no rejected draft); None: nothing was sampled,
            or the request ended before that, among its drafts.
        logprob: natural log probability of that token; of drafts none is told.
        top: the likeliest (token id, logprob), best first.
        drafts: what became of the drafts among its tokens; None: there were none.
    """

    request_id: str
    slot: int
    kind: SegmentKind
    row: int
    q_start: int
    q_len: int
    kv_start: int
    kv_len: int
    position: int
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    num_prompt_left: int = 0
    sampled: int | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    drafts: Drafts | None = None

    @property
    def num_cached(self) -> int:
        """Keys that were there before this step."""
        return self.kv_len - self.q_len

    @property
    def num_drafts(self) -> int:
        """Of its tokens, the last so many are drafts."""
        return self.drafts.fed if self.drafts else 0

    @property
    def num_kept(self) -> int:
        """Its tokens whose keys stay, rejected drafts apart; after the last of them it sampled."""
        return self.q_len - (self.drafts.rejected if self.drafts else 0)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The output tokens it gained in this step: accepted drafts, then the one sampled."""
        sampled = () if self.sampled is None else (self.sampled,)
        if self.drafts is None:
            return sampled
        first = self.q_len - self.num_drafts
        return self.token_ids[first : first + self.drafts.used] + sampled

    def fate(self, token: int) -> Fate | None:
        """What became of one of its tokens, by number from 0; None: it is no draft."""
        number = token - self.q_len + self.num_drafts
        return self.drafts.fate(number) if self.drafts and number >= 0 else None


class TokenCounts(msgspec.Struct, frozen=True):
    """The token positions of a step's tensor, by what they were spent on; `rejected`: on drafts that came to
    nothing.
    """

    prompt: int = 0
    decode: int = 0
    recomputed: int = 0
    dead: int = 0
    padding: int = 0
    rejected: int = 0

    @property
    def total(self) -> int:
        return self.useful + self.dead + self.padding + self.rejected

    @property
    def useful(self) -> int:
        return self.prompt + self.decode + self.recomputed


class SlotRecord(msgspec.Struct, frozen=True):
    """Who was in a slot during a step, with the step's own progress counted in.

    `held` marks a finished request whose slot static batching keeps until the wave ends; it has been
    held for `held_steps` steps.
    """

    slot: int
    request_id: str
    held: bool
    num_computed_tokens: int
    num_prompt_tokens: int
    num_output_tokens: int
    max_tokens: int
    held_steps: int = 0


class WaitingRecord(msgspec.Struct, frozen=True):
    """A waiting request and why it waits.

    `reason` is one of: no_free_slot, token_budget, kv_blocks, wave (slots idle until it ends), draining
    (a switch to static waits for the running), behind (`blocked_by` does not fit), loading, encoding,
    paused, next_step. `idle_slots` counts slots that stay empty meanwhile.
    """

    request_id: str
    reason: str
    blocked_by: str = ""
    idle_slots: int = 0
    preempted: bool = False


class RequestRecord(msgspec.Struct, frozen=True):
    """What was asked; stands once in the stream, when the request arrives.

    `index` is the arrival number that names its letter. `num_template_tokens` counts the prompt tokens a
    chat template added. `label` is the name a file gave it. The other fields are those of
    `SamplingParams`, and `priority` (lower enters earlier, where the policy looks at it).
    `made_before`: output tokens it had already made when an observing source first saw it.
    """

    request_id: str
    index: int
    prompt_token_ids: tuple[int, ...]
    prompt_text: str
    max_tokens: int
    arrival_s: float
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    num_template_tokens: int = 0
    label: str = ""
    top_k: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    n_logprobs: int = 0
    priority: int = 0
    made_before: tuple[int, ...] = ()


class Admission(msgspec.Struct, frozen=True):
    """A request entered a slot; it is first fed in the step whose record this stands in.

    `num_cached_tokens`: its first tokens, whose KV was there in shared blocks and is not computed again
    (a prefix hit).
    """

    request_id: str
    slot: int
    resumed: bool = False
    num_cached_tokens: int = 0


class Preemption(msgspec.Struct, frozen=True):
    """A running request gave its KV back; `lost_tokens` computed tokens must be fed again (fewer, where
    prefix caching finds some of them). `reason` is what was lacking: kv_blocks or slots;
    or reset: nothing was, the server was told to empty its KV cache.
    """

    request_id: str
    slot: int
    lost_tokens: int
    reason: str = "kv_blocks"


#: Why a request ended, where a stop string and being taken back are told in one word.
STOP_OR_ABORT = "stop_or_abort"
#: Why a request ended, where nobody tells: it chose to stop, or its client took it back.
END_NOT_TOLD = "not_told"


class Finish(msgspec.Struct, frozen=True):
    """A request's one terminal event.

    `reason` is stop, length, abort, error or ignored; of a server that tells both alike, `STOP_OR_ABORT`,
    and of one that tells neither, `END_NOT_TOLD`.
    `slot` is None when it never ran. `stop_string`
    is the one that ended it, and `num_text_bytes` the bytes of output before that; None: no string did.
    """

    request_id: str
    reason: str
    slot: int | None
    num_output_tokens: int
    time_s: float
    error: str = ""
    stop_string: str = ""
    num_text_bytes: int | None = None


#: `same`: alone, each token is chosen again. `near_tie`: but for candidates closer than `NEAR_TIE`.
#: `half_precision`: it differs, and in half precision a batch can do that: nothing is claimed.
#: `differs`: it differs otherwise. `unchecked`: there is no verdict, and `error` says why.
AloneVerdict = Literal["same", "near_tie", "half_precision", "differs", "unchecked"]


class Verification(msgspec.Struct, frozen=True):
    """A finished greedy request was run again alone (`engine.verify`); this came of it.

    Attributes:
        num_tokens: its output tokens, all of which were compared.
        output_index: the first output token that differs in the way of the verdict, from 0; None: none.
        step: the step that made it.
        token_id, alone_token_id: the token served there, and the one chosen alone. They may be the same
            where `differs` was found by the log probabilities.
        gap: how much higher the logit of the latter is.
        drift: largest difference of a served token's log probability, over all of its tokens.
    """

    request_id: str
    verdict: AloneVerdict
    num_tokens: int
    output_index: int | None = None
    step: int | None = None
    token_id: int | None = None
    alone_token_id: int | None = None
    gap: float | None = None
    drift: float = 0.0
    error: str = ""


class Release(msgspec.Struct, frozen=True):
    """A slot became free."""

    request_id: str
    slot: int


class Change(msgspec.Struct, frozen=True):
    """A setting that took effect: `name` is mode, max_num_seqs, …"""

    name: str
    before: str
    after: str


class Events(msgspec.Struct, frozen=True):
    """What changed, in the order of the fields' names within a step.

    Attributes:
        submitted: requests that arrived since the record before.
        changed: settings that took effect.
        admitted, preempted, finished, released: as their structs say.
        barrier: a static wave ended in this step (its last request finished).
        blocks_allocated, blocks_freed: KV blocks that went from nobody to a holder, and back.
        blocks_shared: blocks that requests took over with a prefix in them.
        blocks_evicted: prefixes given up because their blocks were needed.
        tokens: (token id, its bytes) of ids that appear for the first time in the stream.
        errors: faults, one sentence each.
        figures: an observed server's own figures that are new or have changed, by their names there; None:
            it no longer tells this one.
        verified: finished requests that were checked alone since.
    """

    submitted: tuple[RequestRecord, ...] = ()
    changed: tuple[Change, ...] = ()
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[Preemption, ...] = ()
    finished: tuple[Finish, ...] = ()
    released: tuple[Release, ...] = ()
    barrier: bool = False
    blocks_allocated: int = 0
    blocks_freed: int = 0
    tokens: tuple[tuple[int, bytes], ...] = ()
    errors: tuple[str, ...] = ()
    blocks_shared: int = 0
    blocks_evicted: int = 0
    figures: tuple[tuple[str, float | None], ...] = ()
    verified: tuple[Verification, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == _NOTHING


_NOTHING = Events()


class StepRecord(msgspec.Struct, frozen=True, tag="step"):
    """One finished step: what went through the model, for whom, and what came of it.

    Attributes:
        step: number of the step, from 1.
        epoch: which start of the model runner it ran on.
        mode, policy, layout: how it was scheduled (way to batch, order) and laid out.
        start_s, end_s: engine clock.
        shape: (rows, columns) of the token tensor.
        num_keys: length of the mask's key axis (of one row's, when padded).
        tokens: its token positions by kind.
        max_num_batched_tokens, max_num_seqs: the limits it ran under.
        segments: in slot order.
        slots: occupied slots only, by number.
        waiting_count: all waiting requests after this step's admissions.
        waiting: the first `WAITING_SHOWN` of them.
        free_blocks, num_blocks: KV pool after the step.
        reserved_blocks: the first of the pool, which nobody is ever given (vLLM's null block).
        cached_blocks: those of the free ones that hold a prefix which may be used again.
        cached_runs: which these are, as runs [first, stop) of block ids; None: there are none, or the same
            as in the record before. Said anew when somebody enters, and every `CACHED_RUNS_EVERY` steps.
        kv_tokens: tokens whose KV is stored for a request after the step, shared ones counted once.
        draining: requests that must end before a mode just switched to starts a wave of its own.
        events: what changed.
        schedule_s, forward_s, sample_s: where the time went.
        failed: the forward failed and its requests ended in error; nothing was sampled.
        inferred: facts (`FACTS`) that an observing source had to infer for this step in particular, beyond
            what its `Provenance` says of all; `steps`: nobody saw the step, it follows from later counts.
        missed: steps right before this one that an observing source knows of, but nothing about; their
            numbers are skipped.
    """

    step: int
    epoch: int
    mode: str
    policy: str
    layout: Layout
    start_s: float
    end_s: float
    shape: tuple[int, int]
    num_keys: int
    tokens: TokenCounts
    max_num_batched_tokens: int
    max_num_seqs: int
    segments: tuple[Segment, ...]
    slots: tuple[SlotRecord, ...]
    waiting_count: int
    waiting: tuple[WaitingRecord, ...]
    free_blocks: int
    num_blocks: int
    kv_tokens: int
    events: Events
    draining: int = 0
    schedule_s: float = 0.0
    forward_s: float = 0.0
    sample_s: float = 0.0
    failed: bool = False
    cached_blocks: int = 0
    cached_runs: tuple[tuple[int, int], ...] | None = None
    inferred: tuple[str, ...] = ()
    missed: int = 0
    reserved_blocks: int = 0

    @property
    def kv_cache_usage(self) -> float:
        """The share of the pool in use after the step, 0-1; 0 where there is none."""
        blocks = self.num_blocks - self.reserved_blocks
        return 1 - self.free_blocks / blocks if blocks > 0 else 0.0


class QuietRecord(msgspec.Struct, frozen=True, tag="quiet"):
    """Changes between steps (a prompt arrived while paused, a waiting request was cancelled).

    `step` is the number of the last finished step.
    """

    step: int
    time_s: float
    events: Events


class TraceHeader(msgspec.Struct, frozen=True, tag="header"):
    """First line of a trace file: the model, and what of the engine its records do not say.

    `layer_windows`: as in `ModelFacts`; with the segments, the mask follows.
    `provenance`: whose records these are; None: this engine's own, every fact of them known.
    """

    schema_version: int
    model: str
    device: str = ""
    dtype: str = ""
    block_size: int = 16
    max_model_len: int = 2048
    machine: str = ""
    num_threads: int = 1
    kv_bytes_per_token: int = 0
    provenance: Provenance | None = None
    layer_windows: tuple[int | None, ...] = ()


Record = StepRecord | QuietRecord
