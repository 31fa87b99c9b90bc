"""A Llama GGUF file of a few kilobytes, quantised and tokenised as the embedded model's is."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quantize
from tokenizers.pre_tokenizers import ByteLevel

from dflash.cache_folder import sha256_of
from dflash.models.embedded import GgufSource

_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_NUM_HEADS, _NUM_KV_HEADS, _HEAD_DIM, _INNER = 2, 1, 32, 96
_HIDDEN = _NUM_HEADS * _HEAD_DIM
_LAYER = {
    "attn_q": (_HIDDEN, _HIDDEN),
    "attn_k": (_NUM_KV_HEADS * _HEAD_DIM, _HIDDEN),
    "attn_v": (_NUM_KV_HEADS * _HEAD_DIM, _HIDDEN),
    "attn_output": (_HIDDEN, _HIDDEN),
    "ffn_gate": (_INNER, _HIDDEN),
    "ffn_up": (_INNER, _HIDDEN),
    "ffn_down": (_HIDDEN, _INNER),
}


def tiny_source(path: Path) -> GgufSource:
    """Write the file at ``path`` and return it as a source to convert."""
    _write(path)
    return GgufSource(find=lambda: path, sha256=sha256_of(path))


def _write(path: Path) -> None:
    writer = GGUFWriter(path, "llama")
    tokens = [*_SPECIAL, *sorted(ByteLevel.alphabet()), "ĠĠ", "he"]
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(128)
    writer.add_embedding_length(_HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_NUM_HEADS)
    writer.add_head_count_kv(_NUM_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL] * len(_SPECIAL) + [TokenType.NORMAL] * (len(tokens) - len(_SPECIAL))
    )
    writer.add_token_merges(["Ġ Ġ", "h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    _add_tensors(writer, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensors(writer: GGUFWriter, vocab_size: int) -> None:
    rng = np.random.default_rng(0)

    def add(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> None:
        values = rng.standard_normal(shape, dtype=np.float32)
        if kind is GGMLQuantizationType.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", (vocab_size, _HIDDEN), GGMLQuantizationType.Q8_0)
    add("output_norm.weight", (_HIDDEN,), GGMLQuantizationType.F32)
    for norm in ("attn_norm", "ffn_norm"):
        add(f"blk.0.{norm}.weight", (_HIDDEN,), GGMLQuantizationType.F32)
    for name, shape in _LAYER.items():
        add(f"blk.0.{name}.weight", shape, GGMLQuantizationType.Q4_1)
