"""Loading a causal LM: weights, tokenizer, checks and probe, with progress and one sentence on failure.

Where a model comes from (the default one, a folder, a file, a Hub id) is decided by
`engine.model_store`; this module reads what it names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as transformers_logging

from engine.model_store import ResolvedModel, cache_root
from engine.runner import Loading, ModelFacts, ModelInfo, ModelLoadError
from engine.torch_runner.arena import LayerShape, kv_bytes_per_token
from engine.torch_runner.checks import check_class, check_config, check_model, length_limit, windows_by_layer
from engine.torch_runner.encoding import tokenizer_json
from engine.torch_runner.exact import check_request, make_exact
from engine.torch_runner.files import fingerprint
from engine.torch_runner.forward import CausalModel, Route
from engine.torch_runner.norms import fuse_norms
from engine.torch_runner.prepack import PackedLinear, prepack_linears
from engine.torch_runner.probe import Findings, probe, probe_exact
from engine.torch_runner.sources import Trust, check_gguf, read_config, read_tokenizer, read_weights
from engine.torch_runner.threads import default_num_threads

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}

Progress = Callable[[Loading], None]


@dataclass(frozen=True)
class LoadOptions:
    """How a model is to run.

    Attributes:
        dtype: one of `DTYPES`.
        device: a torch device, or `auto`: CUDA, else MPS, else the CPU.
        num_threads: torch threads; None: `default_num_threads`.
        route: attention: `fast`, or `reference` (a dense mask and the model's own eager attention).
        exact: logits bitwise the same alone and in any batch, as long as a sequence's tokens are fed in the
            same pieces (`exact.py`); slower, float32 on the CPU and one thread only.
        prepack: let oneDNN keep its own copy of the linear weights, and fuse RMSNorms (CPU, float32 and
            bfloat16).
        replay: run recurring steps by replay where that gives the same logits (CPU, fast route).
        allow_pickle: read pickled weights where there are no others.
        trust_remote_code: run Python files that came with the model.
        cache_dir: where a `tokenizer.json` goes if the source has none.
    """

    dtype: str = "float32"
    device: str = "cpu"
    num_threads: int | None = None
    route: Route = "fast"
    exact: bool = False
    prepack: bool = True
    replay: bool = True
    allow_pickle: bool = False
    trust_remote_code: bool = False
    cache_dir: Path = field(default_factory=cache_root)


@dataclass(frozen=True)
class LoadedModel:
    """A model that passed its checks.

    Attributes:
        causal: the model and how to call it.
        tokenizer: None for a model given without one.
        info: what the engine and the screen need to know.
        layers: what a token leaves in each layer's cache.
        route: the route it runs on.
        fallback_reason: why that is not the fast one although it was wanted; else empty.
    """

    causal: CausalModel
    tokenizer: PreTrainedTokenizerBase | None
    info: ModelInfo
    layers: list[LayerShape]
    route: Route
    fallback_reason: str


def load_model(source: ResolvedModel, options: LoadOptions, progress: Progress) -> LoadedModel:
    """Read a model and make sure it can be run.

    Raises:
        ModelLoadError: it cannot be read, or not be run; one sentence says why.
    """
    transformers_logging.disable_progress_bar()
    trust = Trust(options.allow_pickle, options.trust_remote_code)
    dtype, device = _dtype(options), choose_device(options.device)
    check_dtype_on(device, dtype)
    # First: what is changed while it is read must not pass for what was read.
    stamp = fingerprint(Path(source.path)) if source.kind != "hub" else ""
    progress(Loading("reading the tokenizer", then="reading the weights"))
    if source.kind == "gguf":
        check_gguf(source)
    else:
        config = read_config(source, trust)
        check_config(config)
        if not trust.remote_code:  # whose class nobody knows before it is there
            check_class(config)
    tokenizer = read_tokenizer(source, trust)
    folder = Path(source.path) if source.kind == "folder" else None
    tokenizer_path = tokenizer_json(tokenizer, folder, options.cache_dir, source.name)
    then = "unpacking the weights" if source.kind == "gguf" else "reading the weights"
    progress(Loading(then, then="checking the model"))
    model = read_weights(source, dtype, trust)
    loaded = _prepare(model, tokenizer, tokenizer_path, source, options, device, progress)
    # What came from the Hub has a revision.
    stamp = stamp or str(getattr(model.config, "_commit_hash", None) or "")
    return replace(loaded, info=msgspec.structs.replace(loaded.info, fingerprint=stamp))


def adopt_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    options: LoadOptions,
    progress: Progress,
) -> LoadedModel:
    """Take a model that is built already; without a tokenizer its prompts must be token ids.

    Raises:
        ModelLoadError: it cannot be run; one sentence says why.
    """
    name = type(model).__name__
    path = tokenizer_json(tokenizer, None, options.cache_dir, name) if tokenizer is not None else ""
    source = ResolvedModel(name=name, source=name, path="", kind="folder")
    return _prepare(model, tokenizer, path, source, options, choose_device(options.device), progress)


def choose_device(wanted: str) -> torch.device:
    """The device a name means.

    Raises:
        ModelLoadError: torch does not know it, or it is not there.
    """
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ModelLoadError(
            f"there is no device called {wanted!r}", "device", "use cpu, cuda, mps or auto"
        ) from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise ModelLoadError(f"cbtui does not run on {wanted!r}", "device", "use cpu, cuda, mps or auto")
    if missing := _why_missing(device):
        raise ModelLoadError(f"there is no device {wanted!r} here: {missing}", "device", "use --device cpu")
    return device


def check_dtype_on(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse half precision on MPS: it flips greedy ties, which would look like a fault in the batching.

    Raises:
        ModelLoadError: the type is not used on that device.
    """
    if device.type == "mps" and dtype != torch.float32:
        name = str(dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"{name} on mps is not used: "
            + ("it has no such type" if dtype == torch.float64 else "half precision flips greedy ties there"),
            "dtype",
            "use --dtype float32, or --device cpu",
        )


def _why_missing(device: torch.device) -> str:
    """Why a device cannot be used; empty if it can."""
    if device.type == "cuda":
        if not torch.cuda.is_available():
            built = torch.backends.cuda.is_built()
            return "no GPU that torch can use" if built else "this torch was built without CUDA"
        count = torch.cuda.device_count()
        return f"there are {count} of them, counted from 0" if (device.index or 0) >= count else ""
    if device.type == "mps" and not torch.backends.mps.is_available():
        built = torch.backends.mps.is_built()
        return "no Apple GPU that torch can use" if built else "this torch was built without MPS"
    return ""


def _prepare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    tokenizer_path: str,
    source: ResolvedModel,
    options: LoadOptions,
    device: torch.device,
    progress: Progress,
) -> LoadedModel:
    dtype = _dtype(options)
    check_dtype_on(device, dtype)
    progress(Loading("checking the model", then="ready"))
    check_config(model.config)
    check_model(model)
    if options.exact:
        check_request(device, dtype, options.num_threads)
    torch.set_num_threads(options.num_threads or (1 if options.exact else default_num_threads()))
    try:
        model = model.to(device=device, dtype=dtype).eval()
        causal = CausalModel(model, device, dtype)
        with torch.inference_mode():
            linears = _prepare_linears(model, device, options)
            findings = probe(causal, options.route)
            if options.exact:
                _require_exact(causal, findings)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ModelLoadError(f"there is not enough memory on {device} for {source.name}", "memory") from error
    limit = length_limit(model.config)
    info = ModelInfo(
        name=source.name,
        source=source.source,
        device=_device_name(device),
        dtype=options.dtype,
        max_model_len=limit.tokens,
        vocab_size=findings.vocab_size,
        eos_token_ids=eos_token_ids(model),
        has_chat_template=bool(tokenizer is not None and tokenizer.chat_template),
        tokenizer_path=tokenizer_path,
        num_threads=torch.get_num_threads(),
        kv_bytes_per_token=kv_bytes_per_token(findings.layers, dtype),
        exact=options.exact,
        facts=_facts(model, findings, limit.reason, linears),
    )
    return LoadedModel(causal, tokenizer, info, findings.layers, findings.route, findings.fallback_reason)


def _prepare_linears(model: PreTrainedModel, device: torch.device, options: LoadOptions) -> str:
    """Choose how products with the weights are done; says so in a few words."""
    if options.exact:
        return f"{make_exact(model)} plain, eight rows at a time"
    count = sum(isinstance(module, torch.nn.Linear | Conv1D) for module in model.modules())
    if options.prepack and device.type == "cpu":
        fuse_norms(model)
    if options.prepack and device.type == "cpu" and (packed := prepack_linears(model)):
        forwards = [module.__dict__.get("forward") for module in model.modules()]
        products = {id(forward.packed) for forward in forwards if isinstance(forward, PackedLinear)}
        return f"{packed} of {count} prepacked by oneDNN, fused into {len(products)} products"
    return f"{count} plain"


def _require_exact(causal: CausalModel, findings: Findings) -> None:
    if findings.route != "fast":
        name = type(causal.model).__name__
        reason = findings.fallback_reason or "it was not asked for"
        raise ModelLoadError(
            f"exact mode cannot be had with {name}: it needs the fast attention route, but {reason}",
            "exact",
            "leave --exact out",
        )
    probe_exact(causal, findings.layers)


def _facts(model: PreTrainedModel, findings: Findings, length_reason: str, linears: str) -> ModelFacts:
    first = findings.layers[0]
    text = model.config.get_text_config(decoder=True)
    return ModelFacts(
        architecture=type(model).__name__,
        num_parameters=sum(weight.numel() for weight in model.parameters()),
        num_layers=len(findings.layers),
        num_heads=getattr(text, "num_attention_heads", None) or first.num_key_heads,
        num_kv_heads=first.num_key_heads,
        head_dim=first.key_dim,
        layer_windows=windows_by_layer(model, len(findings.layers)),
        length_reason=length_reason,
        route=findings.route,
        route_reason=findings.fallback_reason,
        linears=linears,
        largest_difference=findings.largest_difference,
    )


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """Tokens that end a request: the generation config's (there may be several), else the config's."""
    generation = getattr(model, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
    if ids is None:
        return ()
    return tuple(int(token) for token in ids) if isinstance(ids, list | tuple) else (int(ids),)


def _dtype(options: LoadOptions) -> torch.dtype:
    if options.dtype not in DTYPES:
        raise ModelLoadError(
            f"there is no dtype {options.dtype!r}", "dtype", f"use one of {', '.join(DTYPES)}"
        )
    return DTYPES[options.dtype]


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
