"""The tokenizer side: prompts to token ids, and the `tokenizer.json` the screen decodes with."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from engine.model_store.cache import private_folder
from engine.runner import EncodedPrompt, ModelLoadError, PromptInput


def encode(tokenizer: PreTrainedTokenizerBase | None, prompt: PromptInput) -> EncodedPrompt:
    """A prompt's token ids, or the reason why there are none; never raises for what a user typed.

    Raw text gets special tokens only where the tokenizer's own default adds them. `chat` text goes
    through the chat template as one user message, or as its `messages`, followed by the opening of the
    assistant's turn.
    """
    if tokenizer is None:
        return _refused("this model came without a tokenizer, so prompts must be given as token ids")
    try:
        if prompt.chat:
            return _encode_chat(tokenizer, prompt)
        token_ids = list(tokenizer(prompt.text)["input_ids"]) if prompt.text else []
    except Exception as error:  # tokenizers and templates are the model's own code and fail in their own ways
        return _refused(f"the prompt cannot be encoded: {error}")
    return EncodedPrompt(token_ids) if token_ids else _refused("the prompt is empty")


def _encode_chat(tokenizer: PreTrainedTokenizerBase, prompt: PromptInput) -> EncodedPrompt:
    if not tokenizer.chat_template:
        return _refused("this model has no chat template; send the text as it stands")
    messages = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
    messages = messages or [{"role": "user", "content": prompt.text}]
    texts = [message["content"] for message in messages if message["content"]]
    own = [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    if not own:
        return _refused("the prompt is empty")
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    token_ids = list(encoded["input_ids"])
    return EncodedPrompt(token_ids, num_template_tokens=max(0, len(token_ids) - len(own)))


def tokenizer_json(
    tokenizer: PreTrainedTokenizerBase, folder: Path | None, cache_dir: Path, name: str
) -> str:
    """Path of a `tokenizer.json`: the one in the model's folder, else one written to the cache.

    Raises:
        ModelLoadError: the tokenizer has no such form, or it cannot be written.
    """
    if folder is not None and (folder / "tokenizer.json").is_file():
        return str(folder / "tokenizer.json")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelLoadError(
            f"the tokenizer of {name} ({type(tokenizer).__name__}) cannot be written as a tokenizer.json, "
            "which the screen reads tokens with",
            stage="tokenizer",
        )
    target = cache_dir / "tokenizers" / name / "tokenizer.json"
    try:
        private_folder(target.parent)
        # Written beside and renamed: another start may be reading the old one.
        handle, temporary = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(backend.to_str())
        os.replace(temporary, target)
    except OSError as error:
        raise ModelLoadError(
            f"{target} cannot be written: {error.strerror or error}", stage="tokenizer"
        ) from error
    return str(target)


def _refused(reason: str) -> EncodedPrompt:
    return EncodedPrompt([], error=reason)
