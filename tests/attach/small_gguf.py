"""A llama model with random weights in a GGUF file, for a server that only has to be real, not clever.

Its vocabulary is bytes, its size such that a step takes some milliseconds on one core.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, FEED, CONTEXT = 10, 512, 8, 2560, 1024
SPECIAL = ("<unk>", "<s>", "</s>")
VOCAB = len(SPECIAL) + 256


def write(path: Path) -> Path:
    """Write it; about 100 MB."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))])
    writer.add_token_scores([0.0] * VOCAB)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(False)
    random = np.random.default_rng(7)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape, np.float32) * 0.05).astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    tensor("token_embd.weight", VOCAB, WIDTH)
    tensor("output.weight", VOCAB, WIDTH)
    norm("output_norm.weight")
    for layer in range(LAYERS):
        at = f"blk.{layer}"
        norm(f"{at}.attn_norm.weight")
        norm(f"{at}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"{at}.{part}.weight", WIDTH, WIDTH)
        tensor(f"{at}.ffn_gate.weight", FEED, WIDTH)
        tensor(f"{at}.ffn_up.weight", FEED, WIDTH)
        tensor(f"{at}.ffn_down.weight", WIDTH, FEED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
