"""Turns a llama-architecture GGUF file into the Hugging Face layout that vLLM loads.

Written out by hand, without torch: the same bytes on every machine, so that the result can be
pinned by digest, and the digit-splitting pre-tokenizer of SmolLM, which transformers' own GGUF
import drops, is kept. Tensor names and the rotary permutation follow llama.cpp's
`convert_hf_to_gguf.py`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

CONTROL_TOKEN: Final = 3  # llama.cpp's LLAMA_TOKEN_TYPE_CONTROL

TOP_LEVEL: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, target: Path, progress: Callable[[int, int], None]) -> None:
    """Writes config, tokenizer and bfloat16 weights of `source` into the directory `target`.

    Args:
        source: a GGUF file of the llama architecture with a byte-level BPE tokenizer.
        target: an existing directory.
        progress: called with (tensors done, tensors in all).
    """
    reader = GGUFReader(str(source))
    meta = {name: field.contents() for name, field in reader.fields.items()}
    for name, document in documents(meta).items():
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        (target / name).write_text(text, encoding="utf-8")
    (target / "chat_template.jinja").write_text(meta["tokenizer.chat_template"], encoding="utf-8")

    heads = {"attn_q": meta["llama.attention.head_count"]}
    heads["attn_k"] = meta["llama.attention.head_count_kv"]
    tensors: dict[str, NDArray[np.uint16]] = {}
    for done, tensor in enumerate(reader.tensors, start=1):
        weights = dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in heads:
            weights = undo_rotary_permutation(weights, heads[part])
        tensors[hugging_face_name(tensor.name)] = bfloat16(weights)
        progress(done, len(reader.tensors))
    write_safetensors(target / "model.safetensors", tensors)


def hugging_face_name(name: str) -> str:
    """The name transformers and vLLM give to a GGUF tensor of the llama architecture."""
    if name in TOP_LEVEL:
        return TOP_LEVEL[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{IN_LAYER[part]}.{kind}"


def undo_rotary_permutation(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Puts a query or key projection back from llama.cpp's interleaved rotary layout."""
    rows, columns = weights.shape
    halves = weights.reshape(heads, rows // heads // 2, 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounds finite float32 values to bfloat16 (nearest, ties to even), as raw bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.uint16]]) -> None:
    """Writes bfloat16 tensors, ordered by name, in the safetensors format.

    Source: the format section of the safetensors README (huggingface/safetensors).
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(tensors):
        start, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(tensors[name].astype("<u2", copy=False).tobytes())


def documents(meta: Mapping[str, Any]) -> dict[str, object]:
    """The JSON files of the model directory, from the GGUF metadata."""
    bos, eos = meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"]
    pad, unknown = meta["tokenizer.ggml.padding_token_id"], meta["tokenizer.ggml.unknown_token_id"]
    tokens = meta["tokenizer.ggml.tokens"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": bos,
        "dtype": "bfloat16",
        "eos_token_id": eos,
        "head_dim": meta["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "pad_token_id": pad,
        "rms_norm_eps": round(meta["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": meta["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "vocab_size": meta["llama.vocab_size"],
    }
    return {
        "config.json": config,
        "generation_config.json": {
            "bos_token_id": bos,
            "eos_token_id": eos,
            "pad_token_id": pad,
        },
        "tokenizer.json": tokenizer(tokens, meta),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": meta["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "pad_token": tokens[pad],
            "unk_token": tokens[unknown],
        },
    }


def tokenizer(tokens: list[str], meta: Mapping[str, Any]) -> dict[str, object]:
    """The `tokenizers` document of a byte-level BPE that splits numbers into single digits."""
    if meta["tokenizer.ggml.model"] != "gpt2" or meta["tokenizer.ggml.pre"] != "smollm":
        raise ValueError("only SmolLM's byte-level BPE tokenizer can be converted")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = True
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, **flags, "special": True}
            for i, token in enumerate(tokens)
            if meta["tokenizer.ggml.token_type"][i] == CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }
