"""Loading, encoding and running to the end, without a screen."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.live.commands import PromptRequest
from engine.runner import Died, LoadFailed, Loading, ModelLoadError, RunnerDied
from engine.session import config_for, drain, encode, submit, token_bytes_of, wait_until_ready
from engine.step.plan import Plan, Reply
from engine.stream.ledger import Ledger
from engine.stream.records import QuietRecord


class Told(FakeRunner):
    """Says what it is told to say when it starts."""

    def __init__(self, *events: object) -> None:
        super().__init__()
        self.told = events

    def start(self) -> None:
        self._events.extend(self.told)  # type: ignore[arg-type]
        super().start()


class Mortal(FakeRunner):
    """Dies in the given steps, once in each."""

    def __init__(self, *fatal_steps: int) -> None:
        super().__init__()
        self.fatal_steps = list(fatal_steps)

    def run(self, plan: Plan) -> Reply:
        if plan.step in self.fatal_steps:
            self.fatal_steps.remove(plan.step)
            self._arenas.clear()
            raise RunnerDied("it was killed")
        return super().run(plan)


def loaded(runner: FakeRunner, prompts: int, slots: int = 3) -> Engine:
    ready = wait_until_ready(runner)
    engine = Engine(EngineConfig(max_num_seqs=slots), runner, ready.info, epoch=ready.epoch)
    requests = [PromptRequest(prompt=f"prompt {i}", max_tokens=4 + i) for i in range(prompts)]
    for request, encoded in zip(requests, encode(runner, requests), strict=True):
        submit(engine, request, encoded)
    return engine


def test_progress_is_passed_on_until_the_model_is_ready():
    seen: list[Loading] = []
    runner = Told(Loading("fetching", 1, 2), Loading("converting"))
    assert wait_until_ready(runner, seen.append).info is runner.info
    assert [loading.stage for loading in seen] == ["fetching", "converting"]


def test_a_failed_load_says_stage_and_hint():
    with pytest.raises(ModelLoadError, match="no such model") as caught:
        wait_until_ready(Told(LoadFailed("no such model", "find", "cbtui --model X")))
    assert (caught.value.stage, caught.value.hint) == ("find", "cbtui --model X")


def test_a_death_while_loading_is_raised():
    with pytest.raises(RunnerDied, match="gone"):
        wait_until_ready(Told(Died("gone", 1)))


def test_prompts_are_encoded_in_order():
    runner = FakeRunner()
    wait_until_ready(runner)
    encoded = encode(runner, [PromptRequest(prompt="ab"), PromptRequest(prompt="c", chat=True)])
    assert [prompt.token_ids for prompt in encoded] == [[97, 98], [256, 99, 257]]


def test_draining_runs_every_request_to_its_end():
    ledger = Ledger()
    for record in drain(loaded(FakeRunner(), 5)):
        ledger.apply(record)
    assert [len(story.output_token_ids) for story in ledger.stories.values()] == [4, 5, 6, 7, 8]


def test_requests_that_can_never_fit_are_reported_without_a_step():
    engine = loaded(FakeRunner(), 0)
    submit(
        engine, PromptRequest(prompt="x" * 3000), encode(engine.runner, [PromptRequest(prompt="x" * 3000)])[0]
    )
    records = list(drain(engine))
    assert [type(record) for record in records] == [QuietRecord]
    assert [finish.reason for finish in records[0].events.finished] == ["ignored"]


def test_a_request_without_a_seed_gets_one():
    engine = loaded(FakeRunner(), 0)
    for _ in range(2):
        submit(engine, PromptRequest(prompt="x"), encode(engine.runner, [PromptRequest(prompt="x")])[0])
    seeds = [request.params.seed for request in engine.requests.values()]
    assert seeds[0] != seeds[1]


def test_a_death_ends_the_step_s_requests_and_the_rest_run_on_after_a_restart():
    ledger = Ledger()
    for record in drain(loaded(Mortal(3), 5, slots=2), restarts=1):
        ledger.apply(record)
    reasons = [story.finish.reason for story in ledger.stories.values() if story.finish]
    assert reasons == ["error", "error", "length", "length", "length"]


def test_outputs_after_a_restart_are_those_without_one():
    ended = []
    for runner in (FakeRunner(), Mortal(6)):
        ledger = Ledger()
        for record in drain(loaded(runner, 5, slots=2), restarts=1):
            ledger.apply(record)
        ended.append({s.index: s.output_token_ids for s in ledger.stories.values()})
    assert [i for i in ended[0] if ended[0][i] == ended[1][i]] == [0, 1, 4]


def test_a_death_too_many_is_raised_after_its_record():
    seen = []
    with pytest.raises(RunnerDied, match="it was killed"):
        seen.extend(drain(loaded(Mortal(2), 3)))
    assert [record.step for record in seen] == [1, 2]


def test_the_model_s_length_limits_the_configuration():
    info = FakeRunner().info
    assert config_for(EngineConfig(max_model_len=1 << 21), info).max_model_len == info.max_model_len
    assert config_for(EngineConfig(max_model_len=64), info).max_model_len == 64


def test_a_runner_without_a_tokenizer_file_has_no_token_bytes():
    assert token_bytes_of(FakeRunner().info) is None
