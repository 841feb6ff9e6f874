"""`cbtui models`: what a model is, which there are, and fetching the default one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cbtui.cli import model_commands
from cbtui.options import runner_spec
from engine.model_store import DEFAULT_MODEL
from engine.model_store.cache import seal
from engine.runner import ModelFacts, ModelInfo, ModelLoadError
from tests.cli.conftest import Ended
from tests.cli.word_runner import UnloadableRunner, WordRunner

Cbtui = Callable[..., Ended]

FACTS = ModelFacts(
    architecture="WordForCausalLM",
    num_parameters=7_240_000_000,
    num_layers=2,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    layer_windows=(4096, None),
    length_reason="n_ctx in its config",
    route="reference",
    route_reason="it asks for a bias",
    linears="14 plain",
    decode_steps="replayed",
    largest_difference=2.5e-5,
)


class KnownRunner(WordRunner):
    """A model of which all is known."""

    def __init__(self) -> None:
        super().__init__()
        self.info = msgspec.structs.replace(self.info, eos_token_ids=(300, 301), num_threads=2, facts=FACTS)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(tmp_path))
    return tmp_path


def make_ready(cache: Path) -> Path:
    folder = cache / "models" / DEFAULT_MODEL.folder_name
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(bytes(5_000_000))
    seal(folder, DEFAULT_MODEL.gguf_sha256)
    return folder


def test_check_prints_what_the_probe_found(cbtui: Cbtui):
    ended = cbtui("models", "check", runner=KnownRunner)
    assert (ended.code, ended.err) == (0, "")
    lines = dict(line.strip().split("  ", 1) for line in ended.out.splitlines()[1:] if "  " in line.strip())
    said = {name: text.strip() for name, text in lines.items()}
    assert said["architecture"] == "WordForCausalLM, 7.2 B parameters"
    assert said["layers"] == "2, with 9 query heads and 3 key heads of 64, sliding window of 4,096 tokens"
    assert said["context"].endswith("tokens: n_ctx in its config")
    assert said["attention"].endswith("because it asks for a bias")
    assert said["linears"] == "14 plain"
    assert said["decode steps"] == "replayed"
    assert said["probe"].endswith("differ by at most 2.5e-05")
    assert "301  t301" in ended.out and "2 threads" in said["runs on"]


def test_check_prints_it_as_data(cbtui: Cbtui):
    ended = cbtui("models", "check", "--json", runner=KnownRunner)
    info = msgspec.json.decode(ended.out, type=ModelInfo)
    assert info == KnownRunner().info and info.facts == FACTS


def test_check_of_a_model_that_says_little_is_no_fault(cbtui: Cbtui):
    ended = cbtui("models", "check")
    assert (ended.code, ended.err) == (0, "")
    assert "none: requests end at their length" in ended.out


def test_check_closes_the_model_process(cbtui: Cbtui):
    ended = cbtui("models", "check")
    assert ended.runner is not None and ended.runner.is_closed  # type: ignore[attr-defined]


def test_check_of_a_model_that_is_not_there_is_one_sentence_and_exit_code_2(cbtui: Cbtui):
    ended = cbtui("models", "check", "x", runner=UnloadableRunner)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "cbtui: the model cannot be loaded (fetch): it is not there; try: pip download it\n"


def test_list_says_that_the_default_model_is_not_here(cbtui: Cbtui, cache: Path):
    ended = cbtui("models", "list")
    assert ended.code == 0
    assert "not here: `cbtui models fetch` downloads 93 MB once; 542 MB on disk" in ended.out
    assert str(cache / "models" / DEFAULT_MODEL.folder_name) in ended.out
    assert not any(cache.iterdir()), "nothing was made by looking"


def test_list_says_that_the_default_model_is_here(cbtui: Cbtui, cache: Path):
    folder = make_ready(cache)
    assert "ready, 5 MB on disk" in cbtui("models", "list").out
    (listed,) = json.loads(cbtui("models", "list", "--json").out)
    assert listed["is_ready"] and listed["path"] == str(folder)
    assert (listed["name"], listed["download_bytes"]) == (DEFAULT_MODEL.name, DEFAULT_MODEL.wheel_bytes)


def test_a_damaged_copy_is_not_ready(cbtui: Cbtui, cache: Path):
    (make_ready(cache) / "config.json").write_bytes(b"")
    (listed,) = json.loads(cbtui("models", "list", "--json").out)
    assert not listed["is_ready"]


def test_fetch_says_where_it_is(cbtui: Cbtui, cache: Path):
    folder = make_ready(cache)
    ended = cbtui("models", "fetch")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"{DEFAULT_MODEL.name} is ready in {folder}\n"


def test_a_fetch_that_fails_is_one_sentence_and_exit_code_2(cbtui: Cbtui, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise ModelLoadError("the index cannot be reached", "fetch", "pip download it")

    monkeypatch.setattr(model_commands, "resolve", fail)
    ended = cbtui("models", "fetch")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "the index cannot be reached; try: pip download it" in ended.err


@pytest.mark.parametrize("arguments", [["models"], ["models", "nonsense"], ["models", "check", "a", "b"]])
def test_a_bad_command_line_names_the_help(cbtui: Cbtui, arguments: list[str]):
    ended = cbtui(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "(cbtui models --help)" in ended.err


@pytest.mark.model
def test_the_real_command_on_the_default_model():
    words = (sys.executable, "-m", "cbtui", "models", "check", "--json", "--threads", "1")
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    info = msgspec.json.decode(done.stdout, type=ModelInfo)
    assert (info.facts.architecture, info.facts.num_parameters) == ("LlamaForCausalLM", 134_515_008)
    assert (info.facts.num_layers, info.facts.num_heads, info.facts.num_kv_heads) == (30, 9, 3)
    assert (info.facts.head_dim, info.kv_bytes_per_token, info.max_model_len) == (64, 46_080, 8192)
    assert (info.facts.route, info.facts.route_reason, info.eos_token_ids) == ("fast", "", (2,))
    assert 0 < info.facts.largest_difference < 1e-3
    assert info.has_chat_template and info.num_threads == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "tpu"], "--device must be one of auto, cpu, cuda, mps, not tpu"),
        (["--dtype", "int8"], "--dtype must be one of float32, bfloat16, float16, float64, not int8"),
    ],
)
@pytest.mark.parametrize("command", [["models", "check"], ["compare"]])
def test_what_no_machine_has_is_refused_before_a_model_process_starts(
    command: list[str], arguments: list[str], words: str, cbtui: Cbtui
):
    ended = cbtui(*command, *arguments)
    assert (ended.code, ended.out, ended.err) == (2, "", f"cbtui: {words}\n")
    assert ended.runner is None


def test_exact_reaches_the_model_process_and_is_said(cbtui: Cbtui, monkeypatch: pytest.MonkeyPatch):
    spec = runner_spec("x", exact=True)
    assert spec.options == {"exact": True}
    assert runner_spec("x").options == {}

    class ExactRunner(KnownRunner):
        def __init__(self) -> None:
            super().__init__()
            self.info = msgspec.structs.replace(self.info, exact=True)

    assert "exact: logits bitwise the same" in cbtui("models", "check", "--exact", runner=ExactRunner).out
    assert "exact" not in cbtui("models", "check", runner=KnownRunner).out
