"""`TorchRunner`: runs plans on a transformers model in this process.

For library use, headless commands, tests and the inside of the worker. Loading happens inside
`start()`, in the calling thread; events are collected meanwhile and `poll()` may be called from another
one. `encode` answers at once and may be called from a thread of its own during a forward.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.model_store import ResolvedModel, resolve
from engine.runner import (
    Encoded,
    ForwardError,
    LoadFailed,
    Loading,
    ModelInfo,
    ModelLoadError,
    PromptInput,
    Ready,
    RunnerDied,
    RunnerError,
    RunnerEvent,
)
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, PlanRow, Reply, SampledToken
from engine.torch_runner.arena import KVArena
from engine.torch_runner.encoding import encode
from engine.torch_runner.exact import ExactStep
from engine.torch_runner.files import LoadedFiles, weight_files
from engine.torch_runner.load import LoadedModel, LoadOptions, adopt_model, load_model
from engine.torch_runner.plain import PlainSequence, judge
from engine.torch_runner.replay import STEPS_TO_TRUST
from engine.torch_runner.sampling import sample
from engine.torch_runner.step import Step
from engine.torch_runner.threads import ThreadChooser, num_cores


class TorchRunner:
    """A `ModelRunner` on torch. See `engine.runner` for what each method promises.

    Args:
        model: what to run: a folder, a `.gguf` file or a Hub id as the user named it; None: the default
            model, fetched if need be; a `ResolvedModel`; or a model that is built already.
        tokenizer: for a model that is built already.
        options: device, type, threads, route and whether it is to be exact.
    """

    def __init__(
        self,
        model: str | ResolvedModel | PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        self._source = model
        self._given_tokenizer = tokenizer
        self._options = options or LoadOptions()
        self._events: deque[RunnerEvent] = deque()
        self._loaded: LoadedModel | None = None
        self._arenas: dict[int, KVArena] = {}
        #: None where the number of threads is given, or does not matter.
        self._threads: ThreadChooser | None = None
        #: Those the weights may still be read from.
        self._files = LoadedFiles(())
        #: The sequence under check, as far as it was fed.
        self._plain: PlainSequence | None = None
        self._epoch = 0
        self._closed = False

    @property
    def loaded(self) -> LoadedModel:
        """The loaded model.

        Raises:
            RunnerDied: it is not loaded, or the runner was closed.
        """
        if self._loaded is None or self._closed:
            raise RunnerDied("the model is not loaded" if not self._closed else "the runner is closed")
        return self._loaded

    @property
    def info(self) -> ModelInfo:
        """What `Ready` carried."""
        return self.loaded.info

    def start(self) -> None:
        """Load, unless that is done already; arenas of an earlier start are gone."""
        self._arenas.clear()
        self._plain = None
        self._epoch += 1
        try:
            if self._loaded is None:
                self._loaded = self._load()
        except ModelLoadError as error:
            self._events.append(LoadFailed(str(error), error.stage, error.hint))
            return
        except Exception as error:  # whatever a model's code does, the user gets a panel
            self._events.append(LoadFailed(f"the model cannot be loaded: {_described(error)}", "load"))
            raise
        self._events.append(Ready(self._loaded.info, self._epoch))

    def poll(self) -> list[RunnerEvent]:
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        tokenizer = self.loaded.tokenizer
        self._events.append(Encoded(ticket, [encode(tokenizer, prompt) for prompt in prompts]))

    def open_arena(self, arena_id: int, shape: ArenaShape) -> None:
        loaded = self.loaded
        arena = self._arenas.get(arena_id)
        if arena is not None and arena.shape == shape:
            return
        # The old one goes first: both together might not fit.
        self._arenas.pop(arena_id, None)
        del arena
        self._arenas[arena_id] = KVArena(shape, loaded.layers, loaded.causal.dtype, loaded.causal.device)

    def run(self, plan: Plan) -> Reply:
        """One step. `forward_s` covers its tensors and the model call, until the device has finished."""
        loaded = self.loaded
        arena = self._arenas.get(plan.arena_id)
        if arena is None:
            raise RunnerError(f"arena {plan.arena_id} is not open")
        if (written := self._files.changed()) is not None:
            raise RunnerDied(f"the model's file {written.name} was written to while it was in use")
        causal = loaded.causal
        try:
            with torch.inference_mode():
                begun = time.perf_counter()
                _check_tokens(plan, loaded.info)
                lay_out = ExactStep if loaded.info.exact else Step
                step = lay_out(plan, arena.shape, causal.device, causal.dtype)
                logits = causal.logits(step, arena, loaded.route)
                causal.synchronize()
                forwarded = time.perf_counter()
                rows = [plan.rows[i] for i in step.geometry.sampled_rows]
                tokens = sample(logits, rows)
                sampled = time.perf_counter()
                answers: list[SampledToken | None] = [None] * len(plan.rows)
                for row, token in zip(step.geometry.sampled_rows, tokens, strict=True):
                    answers[row] = token
                faults: dict[int, str] = {}
                if None in tokens:
                    faults = self._again_alone(plan, arena, answers)
        except RunnerError:
            raise
        except Exception as error:
            raise ForwardError(f"the forward pass of step {plan.step} failed: {_described(error)}") from error
        if self._threads is not None:
            kind = (step.geometry.shape, step.geometry.num_keys // 1024)
            self._threads.observe(kind, forwarded - begun)
        return Reply(plan.epoch, plan.step, forwarded - begun, sampled - forwarded, answers, faults)

    def _again_alone(self, plan: Plan, arena: KVArena, answers: list[SampledToken | None]) -> dict[int, str]:
        """Logits that are not finite: find out whose doing it was, so that nobody else's request ends.

        A cell of NaN spoils whoever reads it, under a mask too, for 0 times NaN is NaN. So rows that may
        have been spoilt are cleaned and run again by themselves; `answers` gets what they give.

        Returns:
            the rows that are at fault, with the cause.
        """
        causal, route = self.loaded.causal, self.loaded.route
        suspects = [
            number
            for number, row in enumerate(plan.rows)
            if (row.sampling is not None and answers[number] is None) or not arena.is_finite(row)
        ]
        guilty = [number for number in suspects if not arena.is_finite(plan.rows[number], before=True)]
        arena.clean(plan.rows[number] for number in suspects)
        for number in suspects:
            row = plan.rows[number]
            if number in guilty or row.kind == "dead":
                continue
            alone = Plan(plan.epoch, plan.arena_id, plan.step, "ragged", [row])
            logits = causal.logits(Step(alone, arena.shape, causal.device, causal.dtype), arena, route)
            tokens = sample(logits, [row] if row.sampling is not None else [])
            if None in tokens or not arena.is_finite(row):
                guilty.append(number)
                arena.clean([row])
            elif tokens:
                answers[number] = tokens[0]
        return {
            number: f"the model's logits for {plan.rows[number].request_id} are not finite (NaN or infinity)"
            for number in guilty
        }

    def check(self, check: Check) -> Checked:
        """A piece of a sequence by the model's own forward, with a cache of transformers' own."""
        loaded = self.loaded
        sequence, self._plain = self._plain, None  # a piece that fails takes its sequence with it
        if not check.start:
            sequence = PlainSequence(loaded.causal)
        if sequence is None or sequence.length != check.start:
            raise ForwardError(f"a check goes on at {check.start}, but its beginning is not here")
        try:
            with torch.inference_mode():
                checked = judge(sequence.feed(check.token_ids, len(check.served)), check.served)
        except RunnerError:
            raise
        except Exception as error:
            raise ForwardError(f"the check alone failed: {_described(error)}") from error
        if not check.is_last:
            self._plain = sequence
        return checked

    def close(self) -> None:
        self._closed = True
        self._files.close()
        self._plain = None
        self._arenas.clear()

    def _load(self) -> LoadedModel:
        source, options = self._source, self._options
        if isinstance(source, PreTrainedModel):
            loaded = adopt_model(source, self._given_tokenizer, options, self._progress)
        else:
            if not isinstance(source, ResolvedModel):
                source = resolve(source, self._progress)
            if source.kind == "folder":
                self._files = LoadedFiles(weight_files(Path(source.path)))
            loaded = load_model(source, options, self._progress)
        if loaded.info.exact or loaded.causal.device.type != "cpu":
            return loaded
        small_step = _small_step(loaded)
        if options.replay and loaded.route == "fast":
            loaded = _with_replay(loaded, small_step)
        if options.num_threads:
            return loaded
        self._threads = ThreadChooser(torch.set_num_threads, num_cores())
        number = self._threads.probe(small_step)
        return dataclasses.replace(loaded, info=msgspec.structs.replace(loaded.info, num_threads=number))

    def _progress(self, loading: Loading) -> None:
        self._events.append(loading)


def _with_replay(loaded: LoadedModel, small_step: Callable[[], float]) -> LoadedModel:
    """The model with replay on, tried on a step, and what came of it among its facts."""
    loaded.causal.replay()
    replayer = loaded.causal.replayer
    assert replayer is not None
    for _ in range(STEPS_TO_TRUST):
        small_step()
    said = "recorded once for each shape and replayed, without the model's Python"
    if replayer.num_replayed == 0:
        said = f"through the model's Python, because {replayer.reason}"
    facts = msgspec.structs.replace(loaded.info.facts, decode_steps=said)
    return dataclasses.replace(loaded, info=msgspec.structs.replace(loaded.info, facts=facts))


def _small_step(loaded: LoadedModel) -> Callable[[], float]:
    """A step of three rows, to be timed: it returns its seconds."""
    causal, shape = loaded.causal, ArenaShape(num_blocks=3, block_size=1, num_slots=3)
    arena = KVArena(shape, loaded.layers, causal.dtype, causal.device)
    rows = [PlanRow(str(slot), slot, "prefill", [slot], 0, 1, [slot]) for slot in range(3)]
    plan = Plan(epoch=0, arena_id=0, step=0, layout="ragged", rows=rows)

    def timed() -> float:
        begun = time.perf_counter()
        with torch.inference_mode():
            causal.logits(Step(plan, shape, causal.device, causal.dtype), arena, loaded.route)
        return time.perf_counter() - begun

    return timed


def _check_tokens(plan: Plan, info: ModelInfo) -> None:
    """Ids and positions a model has no row for: on an accelerator these would end the whole process."""
    for row in plan.rows:
        if not 0 <= min(row.token_ids) <= max(row.token_ids) < info.vocab_size:
            raise ValueError(f"{row.request_id} feeds a token id outside the vocabulary of {info.vocab_size}")
        if not 0 <= row.start_position <= info.max_model_len - len(row.token_ids):
            raise ValueError(f"{row.request_id} goes past the model's {info.max_model_len} positions")


def _described(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
