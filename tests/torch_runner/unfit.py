"""Models that cannot be run, one a name: small folders and files as users have them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BertConfig,
    BloomConfig,
    JambaConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedConfig,
    RwkvConfig,
    T5Config,
    ViTConfig,
)

from tests.torch_runner.test_torch_load import make_tokenizer

_WEIGHTS = "model.safetensors"


def small_model(folder: Path) -> Path:
    """A folder with a model that can be run."""
    settings: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=16, **settings)
    )
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def _config_alone(config: PreTrainedConfig) -> Callable[[Path], Path]:
    """A type of model that is refused before any weight is looked for."""

    def build(folder: Path) -> Path:
        config.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        return folder

    return build


def _spoilt(spoil: Callable[[Path], object]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        spoil(small_model(folder))
        return folder

    return build


def _cut_short(folder: Path) -> None:
    file = folder / _WEIGHTS
    file.write_bytes(file.read_bytes()[:-100])


def _pickled(folder: Path) -> None:
    (folder / _WEIGHTS).unlink()
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")


def _reconfigured(**changes: object) -> Callable[[Path], Path]:
    def spoil(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return _spoilt(spoil)


def _poisoned(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.lm_head.weight.data.fill_(torch.nan)
    model.save_pretrained(folder)


def _weights_alone(folder: Path) -> Path:
    small_model(folder / "whole")
    (folder / "part").mkdir()
    shutil.copy(folder / "whole" / _WEIGHTS, folder / "part")
    return folder / "part"


def _gguf(architecture: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        folder.mkdir()
        file = folder / f"{architecture}.gguf"
        writer = gguf.GGUFWriter(file, architecture)
        writer.add_block_count(1)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "ab"])
        writer.add_token_merges(["a b"])
        writer.add_tensor("token_embd.weight", np.zeros((3, 16), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file

    return build


def _gguf_cut_to(size: int) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        file = _gguf("llama")(folder)
        file.write_bytes(file.read_bytes()[:size])
        return file

    return build


def _nothing(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _hub_id(folder: Path) -> str:
    return "nobody/there-is-no-such-model"


#: Name → what makes it below a folder that does not exist yet, and words of the reason.
UNFIT: dict[str, tuple[Callable[[Path], Path | str], str]] = {
    "T5": (_config_alone(T5Config()), "t5 is an encoder–decoder model"),
    "BART": (_config_alone(BartConfig()), "bart is an encoder–decoder model"),
    "Mamba": (_config_alone(MambaConfig()), "mamba has layers of type linear_attention"),
    "RWKV": (_config_alone(RwkvConfig()), "RwkvForCausalLM keeps a recurrent state"),
    "Jamba": (_config_alone(JambaConfig()), "jamba has layers of type linear_attention"),
    "a BERT": (_config_alone(BertConfig()), "bert is an encoder that sees the whole text"),
    "BLOOM": (_config_alone(BloomConfig()), "takes no position_ids"),
    "a vision model": (_config_alone(ViTConfig()), "no causal language model of type vit"),
    "an empty folder": (_nothing, "holds no model"),
    "weights without a config": (_weights_alone, "holds no model"),
    "a config without weights": (_config_alone(LlamaConfig()), "holds no weights"),
    "weights cut short": (_spoilt(_cut_short), "are damaged"),
    "weights that are none": (_spoilt(lambda f: (f / _WEIGHTS).write_bytes(bytes(500))), "are damaged"),
    "empty weights": (_spoilt(lambda f: (f / _WEIGHTS).write_bytes(b"")), "are damaged"),
    "a Git LFS pointer": (
        _spoilt(lambda f: (f / _WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\n")),
        "Git LFS pointer",
    ),
    "weights of NaN": (_spoilt(_poisoned), "not finite"),
    "pickled weights": (_spoilt(_pickled), "pickled weights only"),
    "weights of another size": (_reconfigured(intermediate_size=32), "do not have the sizes"),
    "weights of too few layers": (_reconfigured(num_hidden_layers=2), "are incomplete"),
    "a type of tomorrow": (_reconfigured(model_type="of_tomorrow"), "does not know"),
    "code of its own": (
        _reconfigured(model_type="own", auto_map={"AutoConfig": "c.C", "AutoModelForCausalLM": "m.M"}),
        "needs code from its own repository",
    ),
    "a GGUF of an unknown architecture": (_gguf("klingon"), "GGUF model with architecture klingon"),
    "a GGUF of a T5": (_gguf("t5"), "t5 is an encoder–decoder model"),
    "a GGUF of a Mamba": (_gguf("mamba"), "mamba has layers of type linear_attention"),
    "a GGUF without most of its tensors": (_gguf("llama"), "do not have the sizes"),
    "a GGUF cut in its tensors": (_gguf_cut_to(-60), "damaged, cut short or incomplete"),
    "a GGUF cut in its keys": (_gguf_cut_to(100), "damaged, cut short or incomplete"),
    "a GGUF cut in its head": (_gguf_cut_to(8), "damaged, cut short or incomplete"),
    "a Hub id with no network": (_hub_id, "the Hub cannot be reached"),
}
