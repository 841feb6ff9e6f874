"""Reading models from folders and ids; every failure is one sentence with its stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from engine.model_store import ResolvedModel
from engine.runner import EncodedPrompt, Loading, Message, ModelLoadError, PromptInput
from engine.torch_runner import sources
from engine.torch_runner.encoding import encode, tokenizer_json
from engine.torch_runner.load import LoadedModel, LoadOptions, adopt_model, choose_device, load_model
from tests.torch_runner.sequences import VOCAB, build, config

WORDS = ["<unk>", "<bos>", "<user>", "<assistant>", "the", "capital", "of", "France", "is", "Paris"]
TEMPLATE = (
    "{% for m in messages %}<user> {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer(bos: bool = False, template: bool = True) -> PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<bos>")
    if template:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = build("llama").float()
    model.generation_config.eos_token_id = [9, 3]
    model.save_pretrained(tmp_path / "small")
    make_tokenizer().save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def _source(path: Path) -> ResolvedModel:
    return ResolvedModel(name=path.name, source=str(path), path=str(path), kind="folder")


def _load(source: ResolvedModel, **options: Any) -> LoadedModel:
    return load_model(source, LoadOptions(num_threads=1, **options), lambda _: None)


def test_a_folder_is_loaded_with_what_the_screen_needs_to_know(folder: Path, tmp_path: Path) -> None:
    seen: list[Loading] = []
    loaded = load_model(_source(folder), LoadOptions(num_threads=1), seen.append)
    info = loaded.info
    assert (info.name, info.source, info.device, info.dtype) == ("small", str(folder), "cpu", "float32")
    assert (info.vocab_size, info.max_model_len, info.num_threads) == (VOCAB, 128, 1)
    assert info.eos_token_ids == (9, 3)
    assert info.has_chat_template
    assert info.kv_bytes_per_token == 2 * (2 * 8 + 2 * 8) * 4
    assert info.tokenizer_path == str(folder / "tokenizer.json")
    assert [event.stage for event in seen] == [
        "reading the tokenizer",
        "reading the weights",
        "checking the model",
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_weights_come_in_the_type_asked_for(folder: Path, dtype: str) -> None:
    loaded = _load(_source(folder), dtype=dtype)
    assert {p.dtype for p in loaded.causal.model.parameters()} == {getattr(torch, dtype)}
    assert loaded.info.dtype == dtype


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match="holds no weights") as caught:
        _load(_source(folder))
    assert caught.value.stage == "weights"


def test_damaged_weights_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(ModelLoadError, match="damaged") as caught:
        _load(_source(folder))
    assert caught.value.stage == "weights"


def test_incomplete_weights_are_refused_and_not_filled_with_random_numbers(folder: Path) -> None:
    description = json.loads((folder / "config.json").read_text())
    description["num_hidden_layers"] = 3
    (folder / "config.json").write_text(json.dumps(description))
    with pytest.raises(ModelLoadError, match="incomplete"):
        _load(_source(folder))


def test_a_folder_without_a_tokenizer_is_refused(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ModelLoadError) as caught:
        _load(_source(folder))
    assert caught.value.stage == "tokenizer"


def test_a_folder_with_a_broken_config_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelLoadError) as caught:
        _load(_source(folder))
    assert caught.value.stage == "config"
    assert "\n" not in str(caught.value)


def test_a_type_transformers_does_not_know_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "of_tomorrow"}')
    with pytest.raises(ModelLoadError, match="transformers does not know"):
        _load(_source(folder))


def test_a_hub_id_without_a_network_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_hub_reachable", lambda: False)
    wanted = ResolvedModel(name="nowhere", source="no-one/nowhere", path="no-one/nowhere", kind="hub")
    with pytest.raises(ModelLoadError, match="cannot be reached") as caught:
        _load(wanted)
    assert caught.value.stage == "fetch"
    assert caught.value.hint


def test_a_damaged_gguf_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + bytes(200))
    source = ResolvedModel(name="broken", source=str(file), path=str(file), kind="gguf")
    with pytest.raises(ModelLoadError) as caught:
        _load(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "stage"),
    [({"dtype": "float3"}, "dtype"), ({"device": "abacus"}, "device"), ({"device": "meta"}, "device")],
)
def test_unknown_types_and_devices_are_refused(folder: Path, options: dict[str, str], stage: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        _load(_source(folder), **options)
    assert caught.value.stage == stage


def test_auto_finds_a_device() -> None:
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


def test_a_model_without_a_tokenizer_is_adopted() -> None:
    loaded = adopt_model(LlamaForCausalLM(config("llama")), None, LoadOptions(num_threads=1), lambda _: None)
    assert loaded.info.tokenizer_path == ""
    assert not loaded.info.has_chat_template
    assert loaded.info.eos_token_ids == ()


def test_raw_text_is_encoded_as_the_tokenizer_does_by_default() -> None:
    prompt = PromptInput("the capital of France is")
    assert encode(make_tokenizer(), prompt) == EncodedPrompt([4, 5, 6, 7, 8])
    assert encode(make_tokenizer(bos=True), prompt) == EncodedPrompt([1, 4, 5, 6, 7, 8])


def test_chat_counts_the_tokens_its_template_adds() -> None:
    encoded = encode(make_tokenizer(), PromptInput("the capital of France is", chat=True))
    assert encoded == EncodedPrompt([2, 4, 5, 6, 7, 8, 3], num_template_tokens=2)


def test_a_conversation_goes_through_the_template_turn_by_turn() -> None:
    turns = (Message("user", "the capital"), Message("assistant", "is"), Message("user", "Paris"))
    encoded = encode(make_tokenizer(), PromptInput("Paris", chat=True, messages=turns))
    assert encoded == EncodedPrompt([2, 4, 5, 2, 8, 2, 9, 3], num_template_tokens=4)


@pytest.mark.parametrize("chat", [True, False])
def test_an_empty_prompt_is_an_error_and_not_an_exception(chat: bool) -> None:
    assert encode(make_tokenizer(), PromptInput("", chat)).error == "the prompt is empty"
    assert encode(make_tokenizer(), PromptInput("  \n", chat)).error == "the prompt is empty"


def test_chat_without_a_template_is_an_error() -> None:
    assert "no chat template" in encode(make_tokenizer(template=False), PromptInput("the", True)).error


def test_a_failing_template_is_an_error_and_not_an_exception() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert "cannot be encoded" in encode(tokenizer, PromptInput("the", True)).error


def test_text_for_a_model_without_a_tokenizer_is_an_error() -> None:
    assert "without a tokenizer" in encode(None, PromptInput("the")).error


def test_a_tokenizer_from_elsewhere_is_written_for_the_screen(tmp_path: Path) -> None:
    path = tokenizer_json(make_tokenizer(), None, tmp_path, "small")
    assert Tokenizer.from_file(path).encode("France is").ids == [7, 8]


def test_a_cache_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizers").write_text("a file where a folder should be")
    with pytest.raises(ModelLoadError, match="cannot be written"):
        tokenizer_json(make_tokenizer(), None, tmp_path, "small")
