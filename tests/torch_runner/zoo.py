"""Small random configurations of many model types, one a kind. All have two layers and 97 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OlmoConfig,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCAB = 97

_NO_SPECIAL_TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,  # large, so that outputs vary and a fault shows
    **_NO_SPECIAL_TOKENS,
}
_WITH_HEAD_DIM = _SMALL | {"head_dim": 8}
_TWO_KINDS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def _gpt2() -> PreTrainedConfig:
    return GPT2Config(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        initializer_range=0.3,
        **_NO_SPECIAL_TOKENS,
    )


def _opt() -> PreTrainedConfig:
    return OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        init_std=0.3,
        **_NO_SPECIAL_TOKENS,
    )


_CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "gpt2": _gpt2,
    "llama": lambda: LlamaConfig(**_WITH_HEAD_DIM),
    "mistral": lambda: MistralConfig(**_WITH_HEAD_DIM, sliding_window=5),
    "gemma2": lambda: Gemma2Config(
        **_WITH_HEAD_DIM, **_TWO_KINDS, attn_logit_softcapping=5.0, query_pre_attn_scalar=8
    ),
    "gpt_oss": lambda: GptOssConfig(
        **_WITH_HEAD_DIM, **_TWO_KINDS, num_local_experts=4, num_experts_per_tok=2
    ),
    "gemma3": lambda: Gemma3TextConfig(**_WITH_HEAD_DIM, **_TWO_KINDS, query_pre_attn_scalar=8),
    "gpt_neox": lambda: GPTNeoXConfig(**_SMALL, rotary_pct=0.5),
    "mixtral": lambda: MixtralConfig(**_SMALL, num_local_experts=4, num_experts_per_tok=2),
    "olmo": lambda: OlmoConfig(**_SMALL),
    "olmo2": lambda: Olmo2Config(**_SMALL),
    "opt": _opt,
    "phi": lambda: PhiConfig(**_SMALL, partial_rotary_factor=0.5),
    "phi3": lambda: Phi3Config(**_SMALL, sliding_window=5),
    "qwen2": lambda: Qwen2Config(**_SMALL),
    "qwen2_moe": lambda: Qwen2MoeConfig(**_SMALL, **_EXPERTS, shared_expert_intermediate_size=16),
    "qwen2_window": lambda: Qwen2Config(**_SMALL, **_TWO_KINDS, use_sliding_window=True),
    "qwen3": lambda: Qwen3Config(**_WITH_HEAD_DIM),
    "qwen3_moe": lambda: Qwen3MoeConfig(**_WITH_HEAD_DIM, **_EXPERTS),
}

KINDS = tuple(_CONFIGS)


def config(kind: str) -> PreTrainedConfig:
    """A fresh config. Sliding windows are 5 or 6 tokens, shorter than the prompts they are run on."""
    return _CONFIGS[kind]()
