"""The one model call, for every layout and both routes.

Owns how a transformers causal LM is called; knows nothing of plans beyond a `Step`. Static and
continuous batching, padded and ragged, go through `CausalModel.logits` and nothing else, so that
comparing them is honest.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from engine.torch_runner.arena import ArenaCache, GatheringCache, KVArena
from engine.torch_runner.attention import SEGMENT_ATTENTION, attending
from engine.torch_runner.checks import layer_windows
from engine.torch_runner.reference_mask import dense_mask
from engine.torch_runner.replay import Replayer
from engine.torch_runner.step import Step

Route = Literal["fast", "reference"]

#: What a model's config carries on each route.
_IMPLEMENTATIONS: dict[Route, str] = {"fast": SEGMENT_ATTENTION, "reference": "eager"}


class CausalModel:
    """A loaded model and the ways it wants to be called.

    Args:
        model: a causal LM in evaluation mode.
        device, dtype: where it is and in which type.
    """

    def __init__(self, model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> None:
        self.model = model
        self.device = device
        self.dtype = dtype
        self.windows = layer_windows(model)
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache"
        if "past_key_values" in parameters and "cache" not in parameters:
            self._cache_name = "past_key_values"  # the older name
        self._keeps_logits = "logits_to_keep" in parameters
        #: Runs steps of the fast route once the model is known to be right; None: it is called each time.
        self.replayer: Replayer | None = None

    def replay(self) -> None:
        """From now on run recurring steps of the fast route by replay, where that gives the same logits."""
        self.replayer = Replayer(self._call)

    def use(self, route: Route) -> None:
        """Make the model's attention the one of `route`.

        Raises:
            ValueError: the fast route is wanted and the model's own code does not let its attention be
                chosen. (The reference route needs no more than that the model takes a mask.)
        """
        name = _IMPLEMENTATIONS[route]
        if self.model.config._attn_implementation == name:
            return
        self.model.set_attn_implementation(name)
        if self.model.config._attn_implementation != name and route == "fast":
            raise ValueError(f"{type(self.model).__name__} does not let its attention be chosen")

    def logits(self, step: Step, arena: KVArena, route: Route) -> torch.Tensor:
        """Run a step; its keys and values end up in the arena.

        Returns:
            `[N, vocab]`: logits of the sampled places only, in plan order.
        """
        self.use(route)
        if route == "fast" and self.replayer is not None:
            return self.replayer.logits(step, arena)
        return self._call(step, ArenaCache(arena, step) if route == "fast" else GatheringCache(arena, step))

    def _call(self, step: Step, cache: ArenaCache) -> torch.Tensor:
        route: Route = "reference" if isinstance(cache, GatheringCache) else "fast"
        inputs: dict[str, object] = {
            "input_ids": step.input_ids,
            "position_ids": step.position_ids,
            "attention_mask": None if route == "fast" else self._reference_masks(step),
            "use_cache": True,
            self._cache_name: cache,
        }
        if self._keeps_logits:
            inputs["logits_to_keep"] = step.logits_to_keep
        with attending(step):
            logits: torch.Tensor = self.model(**inputs).logits
        if self._keeps_logits:
            return logits.reshape(-1, logits.shape[-1])
        return logits.reshape(-1, logits.shape[-1])[step.logits_indices]

    def alone(self, token_ids: list[int], cache: object = None, num_logits: int = 0) -> Any:
        """The model's own plain forward on one sequence, with a cache of transformers' own.

        Args:
            token_ids: the sequence, or what follows the tokens in `cache`.
            cache: `cache_of` an earlier call's output; None: a sequence begins.
            num_logits: logits of so many last tokens are enough; 0: of all.

        Returns:
            the model's output: `logits` `[1, len(token_ids) or fewer, vocab]` and its cache.
        """
        self.use("reference")
        inputs: dict[str, object] = {
            "input_ids": torch.tensor([token_ids], dtype=torch.long, device=self.device),
            "use_cache": True,
        }
        if cache is not None:
            inputs[self._cache_name] = cache
        if num_logits and self._keeps_logits:
            inputs["logits_to_keep"] = num_logits
        return self.model(**inputs)

    def cache_of(self, output: object) -> object:
        """The cache in a model's output."""
        return getattr(output, self._cache_name, None) or getattr(output, "past_key_values", None)

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def _reference_masks(self, step: Step) -> torch.Tensor | dict[str, torch.Tensor]:
        """One tensor where all layers see alike, else one a layer type, as such models' code takes it."""
        masks = {
            kind: dense_mask(step.geometry, window, self.dtype, self.device)
            for kind, window in self.windows.items()
        }
        return next(iter(masks.values())) if len(masks) == 1 else masks
