"""A GGUF file, the Hub's cache and a mixture of experts are read as they stand on a user's disk."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, dynamic_module_utils

from engine.model_store import resolve
from engine.runner import ModelLoadError
from engine.torch_runner import sources
from engine.torch_runner.load import LoadedModel, LoadOptions, load_model
from tests.torch_runner.test_torch_load import make_tokenizer
from tests.torch_runner.unfit import small_model
from tests.torch_runner.zoo import config

HEADS, WIDTH, INNER = 2, 32, 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def loaded(model: str | Path, tmp_path: Path, **asked: bool) -> LoadedModel:
    options = LoadOptions(num_threads=1, cache_dir=tmp_path / "cache", **asked)  # type: ignore[arg-type]
    return load_model(resolve(str(model), lambda _: None), options, lambda _: None)


def write_gguf(file: Path) -> None:
    """A llama of one layer and 260 tokens: every byte, and a few words."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokens = [*letters, "th", "the", "an", "and"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(["t h", "th e", "a n", "an d"])
    writer.add_eos_token_id(0)
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", random.normal(0, 0.2, shape).astype(np.float32))

    add("token_embd", len(tokens), WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{name}", WIDTH, WIDTH)
    add("blk.0.ffn_gate", INNER, WIDTH)
    add("blk.0.ffn_up", INNER, WIDTH)
    add("blk.0.ffn_down", WIDTH, INNER)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        add(name, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_read_with_its_tokenizer(tmp_path: Path) -> None:
    write_gguf(tmp_path / "small.gguf")
    model = loaded(tmp_path / "small.gguf", tmp_path)
    assert (model.info.name, model.info.max_model_len, model.info.eos_token_ids) == ("small", 64, (0,))
    assert model.route == "fast"
    assert Path(model.info.tokenizer_path).is_file()
    assert model.tokenizer is not None
    assert model.tokenizer.convert_ids_to_tokens(model.tokenizer("the")["input_ids"]) == ["the"]


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_gguf(tmp_path / "folder" / "small.gguf")
    assert loaded(tmp_path / "folder", tmp_path).info.name == "small"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of `someone/small` in a Hub cache, where there is no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "models--someone--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return small_model(repository / "snapshots" / COMMIT)


def test_a_model_in_the_hub_s_cache_needs_no_network(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_hub_reachable", lambda: pytest.fail("the network was asked for"))
    info = loaded("someone/small", tmp_path).info
    assert (info.name, info.source) == ("small", "someone/small")


def test_pickled_weights_in_the_hub_s_cache_are_not_read(hub: Path, tmp_path: Path) -> None:
    (hub / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(1)}, hub / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"has no \.safetensors weights in the local Hub cache"):
        loaded("someone/small", tmp_path)


def test_a_cache_that_lacks_the_weights_says_what_is_missing(hub: Path, tmp_path: Path) -> None:
    shutil.rmtree(hub)
    with pytest.raises(ModelLoadError, match="not in the local Hub cache, and the Hub cannot be reached"):
        loaded("someone/small", tmp_path)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_experts_run_as_transformers_itself_chooses_to_run_them(kind: str, tmp_path: Path) -> None:
    settings = config(kind)
    AutoModelForCausalLM.from_config(settings).save_pretrained(tmp_path / "experts")
    make_tokenizer().save_pretrained(tmp_path / "experts")
    model = loaded(tmp_path / "experts", tmp_path)
    assert (model.route, model.fallback_reason) == ("fast", "")
    assert model.info.facts.largest_difference < 1e-4


def pickled(folder: Path) -> Path:
    """A model whose weights are pickled, the tokenizer beside them."""
    model = AutoModelForCausalLM.from_pretrained(small_model(folder))
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def test_pickled_weights_are_read_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = pickled(tmp_path / "model")
    with pytest.raises(ModelLoadError, match="may run code when they are read") as caught:
        loaded(folder, tmp_path)
    assert "--allow-pickle" in caught.value.hint
    assert loaded(folder, tmp_path, allow_pickle=True).route == "fast"


class Harm:
    """Runs a command when it is unpickled by anybody who runs what a pickle says."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self._trace}",)


def test_a_pickle_that_would_run_code_runs_none_even_then(tmp_path: Path) -> None:
    folder = pickled(tmp_path / "model")
    torch.save({"a": Harm(tmp_path / "harm")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="more than tensors"):
        loaded(folder, tmp_path, allow_pickle=True)
    assert not (tmp_path / "harm").exists()


CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path(__file__).parent.joinpath("ran").touch()
class OwnConfig(LlamaConfig):
    model_type = "own_llama"
class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_code_that_comes_with_a_model_runs_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = small_model(tmp_path / "model")
    (folder / "own.py").write_text(CODE)
    settings = json.loads((folder / "config.json").read_text()) | {
        "model_type": "own_llama",
        "architectures": ["OwnForCausalLM"],
        "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"},
    }
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelLoadError, match="needs code from its own repository") as caught:
        loaded(folder, tmp_path)
    assert "--trust-remote-code" in caught.value.hint
    assert not list(tmp_path.rglob("ran"))
    model = loaded(folder, tmp_path, trust_remote_code=True)
    assert type(model.causal.model).__name__ == "OwnForCausalLM"
    assert list(tmp_path.rglob("ran"))
