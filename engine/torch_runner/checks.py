"""Static checks: which models cannot be run ragged, and why, said in one sentence each.

They look at the config and at the signature of `forward`, so they cost nothing. What they miss, the
behavioural probe (`probe.py`) catches.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
)

from engine.runner import ModelLoadError

FULL, SLIDING = "full_attention", "sliding_attention"

#: Where configs keep the number of positions they were trained for.
_LENGTH_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
)

#: Types that are causal only where their config says `is_decoder`, by the classes transformers also has
#: for filling in masked words.
_ENCODERS = frozenset(kind.model_type for kind in MODEL_FOR_MASKED_LM_MAPPING)

#: Where models that do not say how long they may run are cut off.
DEFAULT_MAX_MODEL_LEN = 2048


def check_config(config: PreTrainedConfig) -> None:
    """Refuse what a config alone gives away, before any weight is read.

    Raises:
        ModelLoadError: one sentence with the reason.
    """
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        _refuse(f"{kind} is an encoder–decoder model; cbtui runs decoder-only causal language models")
    text = config.get_text_config(decoder=True)
    if text.model_type in _ENCODERS and not getattr(text, "is_decoder", False):
        _refuse(f"{kind} is an encoder that sees the whole text at once; cbtui runs causal language models")
    if getattr(text, "is_causal", True) is False or getattr(text, "use_bidirectional_attention", None) in (
        True,
        "all",
    ):
        _refuse(f"{kind} attends in both directions; cbtui runs causal language models")
    unknown = sorted(set(getattr(text, "layer_types", None) or ()) - {FULL, SLIDING})
    if unknown:
        _refuse(
            f"{kind} has layers of type {', '.join(unknown)}; only full and sliding-window attention keep "
            "their whole state in a KV cache"
        )


def check_class(config: PreTrainedConfig) -> None:
    """Refuse what the class that transformers would make of a config gives away, before weights are read.

    Raises:
        ModelLoadError: it makes no causal language model of it, or one that `check_model` refuses.
    """
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        _refuse(f"transformers has no causal language model of type {config.model_type}")
    kind = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if isinstance(kind, type):
        check_model(kind)


def check_model(model: PreTrainedModel | type) -> None:
    """Refuse what a model's class gives away; an instance of it or the class itself.

    Raises:
        ModelLoadError: one sentence with the reason.
    """
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    if getattr(model, "_is_stateful", False):
        _refuse(f"{name} keeps a recurrent state beside the KV cache, which cannot be packed into one row")
    forward: Any = model.forward  # type: ignore[union-attr]
    if "position_ids" not in inspect.signature(forward).parameters:
        _refuse(
            f"{name} takes no position_ids, so sequences packed side by side could not start at position 0"
        )


def layer_windows(model: PreTrainedModel) -> dict[str, int | None]:
    """Sliding windows by layer type, those that occur: keys a query sees, its own included; None: all."""
    text = model.config.get_text_config(decoder=True)
    window = getattr(text, "sliding_window", None) if _knows_windows(model) else None
    types = getattr(text, "layer_types", None)
    if types:
        return {kind: window if kind == SLIDING else None for kind in dict.fromkeys(types)}
    if window is None or getattr(text, "use_sliding_window", True) is False:
        return {FULL: None}
    return {SLIDING: window}


def window_of_layer(model: PreTrainedModel, layer: int) -> int | None:
    """The sliding window of one layer."""
    return windows_by_layer(model, layer + 1)[layer]


def windows_by_layer(model: PreTrainedModel, num_layers: int) -> tuple[int | None, ...]:
    """The sliding window of every layer; `num_layers` where the config does not list them."""
    windows = layer_windows(model)
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None)
    if types:
        return tuple(windows[kind] for kind in types)
    return (next(iter(windows.values())),) * num_layers


def _knows_windows(model: PreTrainedModel) -> bool:
    """Whether the model's code has sliding windows at all: some configs carry a window that nothing reads."""
    try:
        sources = [inspect.getsource(sys.modules[kind.__module__]) for kind in _model_classes(model)]
    except (OSError, TypeError, KeyError):  # no source at hand: believe the config
        return True
    return any("sliding_window" in source for source in sources)


def _model_classes(model: PreTrainedModel) -> list[type]:
    """The classes of a model's own modelling code, up to what all models share."""
    kinds = type(model).__mro__
    return [kind for kind in kinds[: kinds.index(PreTrainedModel)] if issubclass(kind, PreTrainedModel)]


class LengthLimit(NamedTuple):
    """Positions a model may be run to, and why so many, in half a sentence."""

    tokens: int
    reason: str


def length_limit(config: PreTrainedConfig) -> LengthLimit:
    """Positions a model may be run to.

    A `dynamic` or `longrope` rotary embedding takes its frequencies from the whole row's largest position,
    so that one long neighbour would change everyone's output: such models stop at the original length,
    below which the frequencies are fixed.
    """
    text = config.get_text_config(decoder=True)
    lengths = {name: getattr(text, name, None) for name in _LENGTH_NAMES}
    limit = LengthLimit(DEFAULT_MAX_MODEL_LEN, "its config does not say how many")
    for name, length in lengths.items():
        if isinstance(length, int) and length > 0:
            limit = LengthLimit(length, f"{name} in its config")
            break
    for rope in _rope_parameters(text):
        kind = str(rope.get("rope_type"))
        if "dynamic" in kind or kind == "longrope":
            original = rope.get("original_max_position_embeddings") or getattr(
                text, "original_max_position_embeddings", None
            )
            if original and int(original) < limit.tokens:
                reason = (
                    f"of {limit.tokens:,}: beyond, a rope of type {kind} takes its frequencies from the "
                    "longest sequence of the step"
                )
                limit = LengthLimit(int(original), reason)
    return limit


def _rope_parameters(config: PreTrainedConfig) -> Iterator[dict[str, Any]]:
    """A config's rotary settings: one dict, or one a layer type."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, dict):
        return
    if any(isinstance(value, dict) for value in rope.values()):
        yield from (value for value in rope.values() if isinstance(value, dict))
    else:
        yield rope


def _refuse(reason: str) -> None:
    raise ModelLoadError(reason, stage="check", hint="choose another model with --model")
