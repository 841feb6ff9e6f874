"""Models that cannot share a row are refused with their reason; those that can are capped where need be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM as AutoModel
from transformers import (
    BloomConfig,
    FalconMambaConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    Qwen3NextConfig,
    T5Config,
)

from engine.runner import ModelLoadError
from engine.torch_runner.checks import check_config, check_model, layer_windows, length_limit
from engine.torch_runner.load import LoadedModel, LoadOptions, adopt_model
from tests.torch_runner.sequences import build, config


def _adopt(model: Any, **options: Any) -> LoadedModel:
    return adopt_model(model, None, LoadOptions(dtype="float64", prepack=False, **options), lambda _: None)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (T5Config(), "encoder–decoder"),
        (Qwen3NextConfig(), "linear_attention"),
        (LlamaConfig(layer_types=["chunked_attention"] * 32), "chunked_attention"),
        (LlamaConfig(is_causal=False), "both directions"),
    ],
)
def test_a_config_that_cannot_be_packed_is_refused(refused: PreTrainedConfig, words: str) -> None:
    with pytest.raises(ModelLoadError, match=words) as caught:
        check_config(refused)
    assert caught.value.stage == "check"


def test_a_model_with_a_recurrent_state_is_refused() -> None:
    small = FalconMambaConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, state_size=4, intermediate_size=16
    )
    with pytest.raises(ModelLoadError, match=r"recurrent state|linear_attention"):
        _adopt(AutoModel.from_config(small))


def test_a_model_without_position_ids_is_refused() -> None:
    model = AutoModel.from_config(BloomConfig(vocab_size=40, hidden_size=16, n_layer=1, n_head=2))
    with pytest.raises(ModelLoadError, match="takes no position_ids"):
        check_model(model)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "gemma2", "gpt_oss"])
def test_ordinary_models_pass(kind: str) -> None:
    check_config(config(kind))
    assert length_limit(config(kind)).tokens == 128


def test_windows_are_read_by_layer_type() -> None:
    assert layer_windows(build("llama")) == {"full_attention": None}
    assert layer_windows(build("mistral")) == {"sliding_attention": 5}
    assert layer_windows(build("gemma2")) == {"sliding_attention": 6, "full_attention": None}


def test_a_window_that_the_model_s_code_does_not_read_is_none() -> None:
    model = build("llama")
    model.config.sliding_window = 3
    assert layer_windows(model) == {"full_attention": None}
    assert _adopt(model).route == "fast"


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_frequencies_that_depend_on_the_longest_neighbour_cap_the_length(rope_type: str) -> None:
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    if rope_type == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    capped = LlamaConfig(
        hidden_size=32, num_attention_heads=4, max_position_embeddings=256, rope_parameters=rope
    )
    limit = length_limit(capped)
    assert limit.tokens == 64
    assert "256" in limit.reason and rope_type in limit.reason


def test_a_config_that_names_no_length_is_cut_off() -> None:
    assert length_limit(PreTrainedConfig()) == (2048, "its config does not say how many")


class LlamaBlindToPositions(LlamaForCausalLM):
    """Takes `position_ids` and ignores them: no static rule sees it."""

    def forward(self, input_ids: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        return super().forward(input_ids=input_ids, **kwargs)


class LlamaBlindToTheMask(LlamaForCausalLM):
    """Right for one sequence alone, silently wrong for two in one row."""

    def forward(
        self, input_ids: Any = None, position_ids: Any = None, attention_mask: Any = None, **kwargs: Any
    ) -> Any:
        if attention_mask is not None and attention_mask.ndim == 4:
            attention_mask = torch.zeros_like(attention_mask)
        return super().forward(
            input_ids=input_ids, position_ids=position_ids, attention_mask=attention_mask, **kwargs
        )


class LlamaWithABias(LlamaForCausalLM):
    """Gives its attention a tensor that the fast route does not know."""

    def forward(self, input_ids: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        return super().forward(
            input_ids=input_ids, position_ids=position_ids, position_bias=torch.zeros(1), **kwargs
        )


def _llama(kind: type[LlamaForCausalLM]) -> LlamaForCausalLM:
    torch.manual_seed(1)
    return kind(config("llama")).double()


def test_the_probe_refuses_a_model_that_ignores_positions() -> None:
    with pytest.raises(ModelLoadError, match="differ from those of each sequence alone") as caught:
        _adopt(_llama(LlamaBlindToPositions))
    assert caught.value.stage == "probe"


def test_the_probe_refuses_a_model_that_ignores_its_mask() -> None:
    with pytest.raises(ModelLoadError, match="differ from those of each sequence alone"):
        _adopt(_llama(LlamaBlindToTheMask), route="reference")


def test_an_attention_that_the_fast_route_does_not_know_falls_back() -> None:
    loaded = _adopt(_llama(LlamaWithABias))
    assert loaded.route == "reference"
    assert "position_bias" in loaded.fallback_reason


def test_a_window_that_the_config_does_not_have_falls_back() -> None:
    model = build("mistral")
    for layer in model.model.layers:
        layer.self_attn.config = config("mistral")
        layer.self_attn.config.sliding_window = 3
        layer.self_attn.config._attn_implementation = model.config._attn_implementation
    assert _adopt(model).fallback_reason


def test_the_probe_leaves_the_route_that_was_wanted() -> None:
    assert _adopt(build("llama")).route == "fast"
    assert _adopt(build("llama"), route="reference").route == "reference"
