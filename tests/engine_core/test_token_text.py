"""Bytes of token ids, from small made tokenizers and from the default model's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.token_text import TokenBytes

TEXTS = [
    "The capital of France is Paris.\n\tIndented",
    "naïve café, “quotes” … and 漢字 and 🙂🏽 and e\u0301",
    "\x00\x1b[31m\x7f\u00a0\u2028",
]


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture
def byte_level(tmp_path: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_tokens([AddedToken("é fait", normalized=False)])
    return tokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_tokens_join_to_the_text(byte_level: Tokenizer, tmp_path: Path, text: str):
    token_bytes = TokenBytes(saved(byte_level, tmp_path))
    ids = byte_level.encode(text).ids
    assert b"".join(map(token_bytes, ids)) == text.encode()
    assert token_bytes.text(ids) == text


def test_added_and_special_tokens_stand_as_they_are(byte_level: Tokenizer, tmp_path: Path):
    token_bytes = TokenBytes(saved(byte_level, tmp_path))
    assert token_bytes(byte_level.token_to_id("<|end|>")) == b"<|end|>"
    assert token_bytes(byte_level.token_to_id("é fait")) == "é fait".encode()


def test_a_token_may_be_part_of_a_character(byte_level: Tokenizer, tmp_path: Path):
    token_bytes = TokenBytes(saved(byte_level, tmp_path))
    assert token_bytes(byte_level.token_to_id("Ã")) == b"\xc3"
    assert token_bytes.text([byte_level.token_to_id("Ã")]) == "�"


def sentence_piece(decoder: decoders.Decoder) -> Tokenizer:
    pieces = ["<unk>", "▁the", "▁", "cat", "<0xE2>", "<0x82>", "<0xAC>", "▁▁"]
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.decoder = decoder
    return tokenizer


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
    ],
)
def test_sentence_piece_marks_are_spaces_and_byte_pieces_bytes(decoder: decoders.Decoder, tmp_path: Path):
    token_bytes = TokenBytes(saved(sentence_piece(decoder), tmp_path))
    assert [token_bytes(i) for i in range(1, 8)] == [
        b" the",
        b" ",
        b"cat",
        b"\xe2",
        b"\x82",
        b"\xac",
        b"  ",
    ]
    assert token_bytes.text([1, 4, 5, 6]) == " the€"


def test_byte_pieces_are_text_where_the_tokenizer_has_no_byte_fallback(tmp_path: Path):
    token_bytes = TokenBytes(saved(sentence_piece(decoders.Metaspace()), tmp_path))
    assert token_bytes(4) == b"<0xE2>"


def test_word_pieces_begin_words_or_go_on(tmp_path: Path):
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    token_bytes = TokenBytes(saved(tokenizer, tmp_path))
    assert token_bytes.text([1, 2]) == " playing"


@pytest.mark.parametrize("token_id", [-1, 8, 1 << 20])
def test_an_unknown_id_has_no_bytes(tmp_path: Path, token_id: int):
    assert TokenBytes(saved(sentence_piece(decoders.Metaspace()), tmp_path))(token_id) == b""


def test_a_broken_file_is_said_in_a_sentence(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read as a tokenizer"):
        TokenBytes(tmp_path / "tokenizer.json")(0)


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_the_default_models_tokens_join_to_the_text(default_model_path: Path, text: str):
    path = default_model_path / "tokenizer.json"
    ids = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    assert TokenBytes(path).text(ids) == text


@pytest.mark.model
def test_every_id_of_the_default_model_has_bytes(default_model_path: Path):
    path = default_model_path / "tokenizer.json"
    token_bytes = TokenBytes(path)
    assert all(token_bytes(i) for i in range(Tokenizer.from_file(str(path)).get_vocab_size()))
