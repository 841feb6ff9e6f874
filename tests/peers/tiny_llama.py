"""A Llama of random weights that a server starts in seconds.

Two heads of keys and four layers: it can be split over two tensor-parallel or pipeline-parallel workers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def make_tiny_llama(folder: Path, tokenizer: Path) -> Path:
    """Write the model to `folder`, with another model's tokenizer."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        initializer_range=0.2,  # at the usual one every output is one token over and over
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    return folder
