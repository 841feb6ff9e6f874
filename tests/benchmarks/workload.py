"""The tutorial's six requests as token ids, and plain models for the peers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from transformers import AutoModelForCausalLM as AutoModel
from transformers import AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.model_store import resolve
from engine.workload import tutorial_workload

SLOTS = 3


@dataclass(frozen=True)
class Job:
    """A prompt and how many tokens to generate, whatever comes: end-of-sequence tokens are ignored."""

    prompt: list[int]
    num_tokens: int


@cache
def model_folder() -> str:
    """The default model, fetched if need be."""
    return resolve(None, lambda _: None).path


def jobs(scale: float = 1.0) -> list[Job]:
    """The tutorial's requests; `scale` below 1 shortens their outputs, for a quick look."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    return [
        Job(tokenizer(request.prompt).input_ids, max(1, round(request.max_tokens * scale)))
        for request in tutorial_workload()
    ]


def plain_model(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """transformers' own model, untouched, which never stops by itself."""
    transformers_logging.disable_progress_bar()
    model = AutoModel.from_pretrained(model_folder(), dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    return model
