"""`python -m engine.torch_runner.convert GGUF FOLDER`: a GGUF file as a folder that loads in a second.

transformers reads GGUF itself, but slowly (it unpacks the quantised weights and parses the vocabulary anew at
each start), so the default model is converted once. Prints one JSON line a part (`engine.model_store.convert`
reads them) and ends at the end of its standard input, so that a killed parent leaves nothing running.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.model_store.convert import Part

_PARTS = 4


def convert(gguf: Path, folder: Path, report: Callable[[Part], None]) -> None:
    """Write config, generation config, tokenizer, chat template and float32 weights of `gguf` into `folder`.

    Needs about 1.1 GiB of memory for a model of 135 M weights; `folder` may exist.

    Raises:
        ValueError, OSError: transformers cannot read this file, or the folder cannot be written.
    """
    report(Part("starting", 0, _PARTS))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    report(Part("reading the vocabulary", 1, _PARTS))
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    report(Part("unpacking the weights", 2, _PARTS))
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    # The weights are plain now; with a quantizer still attached, saving would refuse.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    report(Part("writing them", 3, _PARTS))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    report(Part("done", _PARTS, _PARTS))


def _end_with_parent() -> None:
    # The bare descriptor: a thread inside a buffered read would abort the interpreter at its end.
    while os.read(0, 1):
        pass
    os._exit(1)


def main(arguments: list[str]) -> int:
    """Convert as the two arguments say, reporting on standard output."""
    gguf, folder = map(Path, arguments)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def report(part: Part) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(part) + b"\n")
        sys.stdout.buffer.flush()

    convert(gguf, folder, report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
