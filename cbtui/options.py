"""What the command line hands to the screen: which model, which engine, how fast. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.attach.address import Address, Key
from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.worker.wire import RunnerSpec

#: Steps a second of a screen just opened: a small model answers faster than a person types, and at full
#: speed one slot would ever be busy.
DEFAULT_SPEED = 8.0
#: Records kept unless somebody says otherwise: about 70 MB of a three-slot engine's.
DEFAULT_HISTORY = 10_000
#: Finished requests whose stories are kept unless somebody says otherwise.
DEFAULT_STORIES = 5_000
#: Output tokens at most of a prompt that does not say.
DEFAULT_MAX_TOKENS = 64
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True)
class VllmServe:
    """A vLLM to start: its executable, and what it is given behind `vllm serve`."""

    executable: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options of `cbtui launch`, checked.

    Attributes:
        runner: the model process to start; its `options` hold device, dtype and threads where given.
        config: limits and the first mode.
        speed: steps a second at most; None: as fast as it can.
        paused: start paused, to collect prompts first.
        history: records kept at least, to look back at; older ones are dropped.
        stories: finished requests kept at least with all that is known of them; older ones are dropped when
            no kept step needs them.
        demo: submit the tutorial's six requests at once.
        raw: plain continuation instead of the model's chat template.
        max_tokens: output tokens at most of a prompt typed without saying.
        asked: what a typed prompt is asked with: all but its text, length and chat template.
        requests: of a file, submitted as soon as the model is there.
        arrivals: their arrival times so many times as fast; None: all at once.
        record: a trace file to write as it happens.
        metrics: a port to serve metrics on; None: they are not served.
        replay: a trace to show instead of running an engine, its steps up to `replay_upto` at once.
        attach: a server to follow instead of running an engine.
        vllm: a vLLM to start and follow instead of running an engine.
        key: what it wants to see before it answers; None: what the environment has.
        verify: run finished greedy requests again alone, and hold them against that.
        race: requests to race in two modes as soon as the model is there.
        lesson: the lesson the program was started for; 0: none.
        lesson_on_model: play it on the model, once that is there, not on the toy.
        theme: one of `cbtui.settings.THEME_NAMES`; None: the settings' own.
    """

    runner: RunnerSpec = field(default_factory=RunnerSpec)
    config: EngineConfig = field(default_factory=EngineConfig)
    speed: float | None = DEFAULT_SPEED
    paused: bool = False
    history: int = DEFAULT_HISTORY
    stories: int = DEFAULT_STORIES
    demo: bool = False
    raw: bool = False
    max_tokens: int = DEFAULT_MAX_TOKENS
    asked: PromptRequest = field(default_factory=lambda: PromptRequest(prompt=""))
    requests: tuple[PromptRequest, ...] = ()
    arrivals: float | None = None
    record: Path | None = None
    metrics: int | None = None
    replay: Path | None = None
    replay_upto: float = 0
    attach: Address | None = None
    vllm: VllmServe | None = None
    key: Key | None = None
    verify: bool = False
    race: tuple[PromptRequest, ...] = ()
    lesson: int = 0
    lesson_on_model: bool = False
    theme: str | None = None

    def without_race(self) -> LaunchOptions:
        """The same once the race has begun."""
        return replace(self, race=())


def runner_spec(
    model: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    *,
    exact: bool = False,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> RunnerSpec:
    """The model process those options ask for; what is None stays the runner's own choice.

    Raises:
        ValueError: there is no such device or type anywhere; whether it is here, the model process knows.
    """
    _require("--device", (DEVICES[0] if device is None else device).partition(":")[0], DEVICES)
    _require("--dtype", DTYPES[0] if dtype is None else dtype, DTYPES)
    asked = {
        "device": device,
        "dtype": dtype,
        "num_threads": threads,
        "exact": exact or None,
        "allow_pickle": allow_pickle or None,
        "trust_remote_code": trust_remote_code or None,
    }
    return RunnerSpec(
        model=model, options={name: value for name, value in asked.items() if value is not None}
    )


def risks(runner: RunnerSpec) -> list[str]:
    """What was asked for that lets a model do more than compute, a sentence each."""
    found = []
    if runner.options.get("allow_pickle"):
        found.append(
            "--allow-pickle: pickled weights may run code when they are read; use it for files you trust"
        )
    if runner.options.get("trust_remote_code"):
        found.append("--trust-remote-code: Python code that came with the model runs on this machine as you")
    return found


def _require(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{option} must be one of {', '.join(known)}, not {value or 'empty'}")
