"""The config and tensors of a Llama-family GGUF file, as a Hugging Face checkpoint holds them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize
from torch import Tensor

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
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


def field(reader: GGUFReader, key: str) -> Any:
    """Return the value of one metadata key; a missing key is a `KeyError`."""
    return reader.fields[key].contents()


def config_from_gguf(reader: GGUFReader) -> dict[str, Any]:
    """Return the content of ``config.json``."""
    num_heads = field(reader, "llama.attention.head_count")
    hidden_size = field(reader, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": field(reader, "llama.vocab_size"),
        "hidden_size": hidden_size,
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv"),
        "head_dim": hidden_size // num_heads,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _shortest(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _shortest(field(reader, "llama.rope.freq_base")),
        },
        "max_position_embeddings": field(reader, "llama.context_length"),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": field(reader, "tokenizer.ggml.padding_token_id"),
        "dtype": "bfloat16",
    }


def tensors_from_gguf(reader: GGUFReader) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor's Hugging Face name and its bfloat16 values, in file order.

    Bfloat16 keeps 8 significant bits where the file's own quantisation kept 4 (8 in the
    embedding), so storing float32 would double the size and keep only the rounding noise.
    """
    for tensor in reader.tensors:
        name = _name_of(tensor.name)
        values = torch.from_numpy(_values_of(reader, tensor))
        yield name, values.to(torch.bfloat16)


def _name_of(gguf_name: str) -> str:
    if gguf_name in _TOP_NAMES:
        return _TOP_NAMES[gguf_name]
    _, layer, kind, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.weight"


def _values_of(reader: GGUFReader, tensor: ReaderTensor) -> np.ndarray:
    values = dequantize(tensor.data, tensor.tensor_type)
    if tensor.name.endswith("attn_q.weight"):
        return _halves_apart(values, field(reader, "llama.attention.head_count"))
    if tensor.name.endswith("attn_k.weight"):
        return _halves_apart(values, field(reader, "llama.attention.head_count_kv"))
    # A copy where the values are still a view of the read-only file.
    return np.array(values, dtype=np.float32)


def _halves_apart(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Return the rows in Hugging Face's order.

    Rotary embedding turns pairs of rows of a head. GGUF keeps the two of a pair next to each
    other; Hugging Face puts all first ones before all second ones.
    """
    num_rows, num_columns = weight.shape
    pairs = weight.reshape(num_heads, num_rows // num_heads // 2, 2, num_columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(num_rows, num_columns)


def _shortest(value: float) -> float:
    """Return the shortest decimal that is the same float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
