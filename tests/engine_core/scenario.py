"""Random lives of an engine: what happens between and during its steps, and a driver that plays it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import strategies as st
from oracle import said, solo_outputs

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import Request, SamplingParams
from engine.runner import ForwardError
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES
from engine.step.plan import Plan, Reply
from engine.stream.records import Record, StepRecord


@dataclass(frozen=True)
class Ask:
    prompt: tuple[int, ...]
    params: SamplingParams
    priority: int = 0


@dataclass(frozen=True)
class Act:
    """Something done before step number `step` (of steps run, from 0)."""

    step: int
    kind: str
    number: int = 0


def tick_clock() -> EngineClock:
    """A clock that moves a millisecond whenever it is read: records are equal run after run."""
    now = [0.0]

    def source() -> float:
        now[0] += 0.001
        return now[0]

    return EngineClock(source)


class FailingRunner(FakeRunner):
    """Fails the forwards of given step numbers."""

    def __init__(self, failing: set[int], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.failing = failing

    def run(self, plan: Plan) -> Reply:
        reply = super().run(plan)
        if plan.step in self.failing:
            raise ForwardError("the forward failed on purpose")
        return reply


@dataclass
class Scenario:
    config: EngineConfig
    asks: list[Ask]
    acts: list[Act]
    failing: set[int] = field(default_factory=set)
    eos: int | None = None


@st.composite
def asks(draw: st.DrawFn, *, long: bool = False) -> Ask:
    """A request; some are given a stop token that they will meet."""
    # Lengths are drawn, contents follow: hypothesis then spends its choices on what matters here.
    length, salt = draw(st.sampled_from([1, 2, 3, 5, 7, 12, 17, 24])), draw(st.integers(0, 2))
    prompt = bytes((salt * 31 + place * 7) % 256 for place in range(length))
    params = SamplingParams(
        max_tokens=draw(st.sampled_from([16, 20, 25, 30] if long else [1, 2, 5, 9, 16, 25, 30])),
        temperature=draw(st.sampled_from([0.0, 0.0, 1.0])),
        top_k=draw(st.sampled_from([0, 1, 5])),
        seed=draw(st.integers(0, 3)),
        ignore_eos=draw(st.booleans()),
    )
    meets = draw(st.integers(0, (9 if long else 3) * params.max_tokens))
    if meets < params.max_tokens:
        stop = solo_outputs(list(prompt), params)[meets]
        params = msgspec.structs.replace(params, stop_token_ids=(stop,))
    elif meets == params.max_tokens:
        # A string that begins in the middle of one token and ends in another.
        text = said(solo_outputs(list(prompt), params))
        at = draw(st.integers(0, len(text) - 1))
        params = msgspec.structs.replace(params, stop=("nothing", text[at : at + draw(st.integers(1, 9))]))
    return Ask(tuple(prompt), params, draw(st.sampled_from([0, 0, 1, -1])))


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    """Small engines; most are short of KV blocks, so that requests preempt each other."""
    slots = draw(st.sampled_from([1, 2, 3, 5]))
    block_size = draw(st.sampled_from([1, 2, 4, 16]))
    kv_tokens = draw(st.sampled_from([160, 64, 56, 48, 40]))
    return EngineConfig(
        mode=draw(st.sampled_from(list(MODES))),
        max_num_seqs=slots,
        max_num_batched_tokens=draw(
            st.sampled_from([slots, slots + 1, 12, 24, 25, 60]).filter(lambda n: n >= slots)
        ),
        max_model_len=draw(st.sampled_from([20, 64, 2048])),
        block_size=block_size,
        num_blocks=max(1, kv_tokens // block_size),
        policy=draw(st.sampled_from(list(POLICIES))),
        prefix_caching=draw(st.booleans()),
    )


@st.composite
def scenarios(draw: st.DrawFn, *, disturbed: bool = True) -> Scenario:
    config = draw(configs())
    requests = [draw(asks()) for _ in range(draw(st.sampled_from([1, 2, 4, 6, 8])))]
    kinds = "submit submit mode mode slots budget policy caching surplus surplus".split()
    if disturbed:
        kinds += ["cancel", "cancel_during", "reset"]
    acts = draw(
        st.lists(
            st.builds(Act, st.sampled_from(range(40)), st.sampled_from(kinds), st.integers(0, 200)),
            max_size=12,
        )
    )
    failing = {draw(st.sampled_from([1, 5, 20, 1000, 1001, 1002]))} if disturbed else set()
    eos = None
    if draw(st.booleans()):  # a token that the first request will meet, unless it ignores it
        first = requests[0]
        eos = draw(st.sampled_from(solo_outputs(list(first.prompt), first.params)))
    return Scenario(config, requests, sorted(acts, key=lambda a: a.step), failing, eos)


@st.composite
def pressed(draw: st.DrawFn) -> Scenario:
    """Long requests in a small KV cache, undisturbed but for mode switches: preemption is the rule."""
    config = EngineConfig(
        mode=draw(st.sampled_from(list(MODES))),
        max_num_seqs=draw(st.sampled_from([3, 4, 5])),
        max_num_batched_tokens=draw(st.sampled_from([8, 24, 60])),
        max_model_len=64,
        block_size=draw(st.sampled_from([1, 2, 4])),
        num_blocks=draw(st.sampled_from([12, 14, 16])) * 4,
        policy=draw(st.sampled_from(list(POLICIES))),
        prefix_caching=draw(st.booleans()),
    )
    config = msgspec.structs.replace(config, num_blocks=config.num_blocks // config.block_size)
    requests = [draw(asks(long=True)) for _ in range(draw(st.sampled_from([3, 5, 7])))]
    modes = st.builds(Act, st.sampled_from(range(40)), st.just("mode"), st.integers(0, len(MODES) - 1))
    return Scenario(config, requests, sorted(draw(st.lists(modes, max_size=2)), key=lambda a: a.step))


@st.composite
def sharing(draw: st.DrawFn) -> Scenario:
    """Prompts that begin alike, prefix caching on, and all that can go wrong with blocks others hold."""
    config = EngineConfig(
        mode=draw(st.sampled_from(list(MODES))),
        max_num_seqs=draw(st.sampled_from([2, 3, 5])),
        max_num_batched_tokens=draw(st.sampled_from([9, 30, 200])),
        block_size=draw(st.sampled_from([1, 2, 4])),
        num_blocks=64,
        policy=draw(st.sampled_from(list(POLICIES))),
        prefix_caching=True,
    )
    tokens = draw(st.sampled_from([40, 48, 64, 120]))
    config = msgspec.structs.replace(config, num_blocks=tokens // config.block_size)
    requests = []
    for _ in range(draw(st.sampled_from([4, 6, 9]))):
        shared, own = draw(st.sampled_from([0, 3, 4, 8, 9, 17])), draw(st.integers(1, 6))
        prompt = [7 * place for place in range(shared)] + [draw(st.integers(0, 1)) for _ in range(own)]
        params = SamplingParams(max_tokens=draw(st.sampled_from([1, 4, 9, 14])))
        requests.append(Ask(tuple(prompt), params))
    kinds = "submit mode surplus surplus slots caching cancel cancel_during reset reset".split()
    acts = draw(
        st.lists(
            st.builds(Act, st.sampled_from(range(1, 25)), st.sampled_from(kinds), st.integers(0, 200)),
            min_size=3,
            max_size=8,
        )
    )
    failing = {draw(st.sampled_from([1, 3, 6, 9, 1000]))}
    return Scenario(config, requests, sorted(acts, key=lambda a: a.step), failing)


class Life:
    """Plays a scenario on an engine and keeps everything a property may ask about.

    Two thirds of the requests are there from the start; each `submit` act brings the next one in,
    what is left enters when the engine would otherwise stop.
    """

    def __init__(self, scenario: Scenario, runner: FakeRunner | None = None) -> None:
        self.scenario = scenario
        self.runner = runner or FailingRunner(scenario.failing, eos_token_id=scenario.eos)
        self.runner.keep_plans = True
        self.engine = Engine(
            scenario.config,
            self.runner,
            self.runner.info,
            clock=tick_clock(),
            token_bytes=lambda t: b"%d " % t,
        )
        #: Whether prefix caching was ever on.
        self.has_cached = scenario.config.prefix_caching
        self.records: list[Record] = []
        self.requests: dict[str, Request] = {}
        self.asks: dict[str, Ask] = {}
        self.cancelled: set[str] = set()
        self._coming = list(scenario.asks)
        self._acts = list(scenario.acts)
        self._submit(max(1, 2 * len(self._coming) // 3))

    def play(self, check=lambda life, record: None) -> None:
        """Run to the end, calling `check` after every step."""
        steps = 0
        while True:
            during: list[str] = []
            while self._acts and self._acts[0].step <= steps:
                self._do(self._acts.pop(0), during)
            if not self.engine.has_work:
                if not self._coming:
                    break
                self._submit(1)
                continue
            self._keep_quiet()
            record = self.engine.step(lambda during=during: during)
            assert record is not None, "work to do, but no step"
            self.records.append(record)
            check(self, record)
            steps += 1
            assert steps < 3000, "no end in sight"
        self._keep_quiet()

    @property
    def steps(self) -> list[StepRecord]:
        return [r for r in self.records if isinstance(r, StepRecord)]

    def _keep_quiet(self) -> None:
        record = self.engine.take_quiet_record()
        if record is not None:
            self.records.append(record)

    def _submit(self, count: int) -> None:
        for ask in self._coming[:count]:
            request_id = self.engine.add_request(list(ask.prompt), ask.params, priority=ask.priority)
            self.asks[request_id] = ask
            if request_id in self.engine.requests:
                self.requests[request_id] = self.engine.requests[request_id]
        del self._coming[:count]

    def _do(self, act: Act, during: list[str]) -> None:
        engine, config = self.engine, self.engine.config
        if act.kind == "submit":
            self._submit(1)
        elif act.kind == "mode":
            engine.set_mode(list(MODES)[act.number % len(MODES)])
        elif act.kind == "slots":
            slots = 1 + act.number % 6
            if slots <= config.max_num_batched_tokens:
                engine.configure(msgspec.structs.replace(config, max_num_seqs=slots))
        elif act.kind == "surplus":
            slots = 1 + act.number % 2 if config.max_num_batched_tokens > 1 else 1
            engine.configure(msgspec.structs.replace(config, max_num_seqs=slots), preempt_surplus=True)
        elif act.kind == "policy":
            policy = list(POLICIES)[act.number % len(POLICIES)]
            engine.configure(msgspec.structs.replace(config, policy=policy))
        elif act.kind == "caching":
            self.has_cached |= act.number % 2 == 0
            engine.configure(msgspec.structs.replace(config, prefix_caching=act.number % 2 == 0))
        elif act.kind == "budget":
            budget = max(config.max_num_seqs, engine.scheduler.num_rows, 1 + act.number % 60)
            engine.configure(msgspec.structs.replace(config, max_num_batched_tokens=budget))
        elif act.kind in ("cancel", "cancel_during"):
            alive = sorted(engine.requests)
            if alive:
                request_id = alive[act.number % len(alive)]
                self.cancelled.add(request_id)
                if act.kind == "cancel":
                    engine.abort_request(request_id)
                else:
                    during.append(request_id)
        elif act.kind == "reset":
            engine.reset(engine.epoch + 1, "the model process was started again")
