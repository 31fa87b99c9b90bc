"""The embedded model against the GGUF file it was made from, read by other means."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash.cache_folder import default_cache_dir
from dflash.models.checkpoint import Checkpoint, open_checkpoint
from dflash.models.embedded import packaged_gguf

NUM_HEADS = {"attn_q": 9, "attn_k": 3}
HEAD_DIM = 64
HF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
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


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return open_checkpoint("smollm2-135m-instruct", default_cache_dir())


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint.folder)


@pytest.fixture(scope="module")
def transformers_tokenizer():
    """Return the tokenizer as transformers itself converts it; it leaves out the digit rule."""
    gguf = packaged_gguf()
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def float16_at(blocks: np.ndarray, byte: int) -> np.ndarray:
    return blocks[:, byte : byte + 2].copy().view(np.float16).astype(np.float32)


def expected_tensors(gguf: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every tensor, dequantised by the format's definition, block by block of 32."""
    for tensor in GGUFReader(gguf).tensors:
        kind = tensor.tensor_type.name
        if kind == "F32":
            values = np.array(tensor.data)
        elif kind == "Q8_0":
            blocks = np.array(tensor.data).reshape(-1, 34)
            values = float16_at(blocks, 0) * blocks[:, 2:].view(np.int8)
        else:
            assert kind == "Q4_1"
            blocks = np.array(tensor.data).reshape(-1, 20)
            nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
            values = float16_at(blocks, 0) * nibbles + float16_at(blocks, 2)
        yield tensor.name, values.reshape([int(size) for size in reversed(tensor.shape)])


def hf_row(row: int) -> int:
    """Return where a row lies once the two rows of each rotary pair are half a head apart."""
    head, inside = divmod(row, HEAD_DIM)
    pair, which = divmod(inside, 2)
    return head * HEAD_DIM + which * HEAD_DIM // 2 + pair


def test_every_weight_is_the_files_own_value_rounded_to_bfloat16(checkpoint):
    num_compared = 0
    for gguf_name, values in expected_tensors(packaged_gguf()):
        *layer, kind, _ = gguf_name.split(".")
        prefix = f"model.layers.{layer[1]}." if layer else ""
        expected = torch.from_numpy(values)
        if kind in NUM_HEADS:
            order = [hf_row(row) for row in range(NUM_HEADS[kind] * HEAD_DIM)]
            expected = torch.empty_like(expected).index_copy_(0, torch.tensor(order), expected)

        stored = checkpoint.tensor(f"{prefix}{HF_NAMES[kind]}.weight")

        assert torch.equal(stored, expected.to(torch.bfloat16)), gguf_name
        num_compared += stored.numel()
    assert num_compared == 134_515_008


def test_the_config_is_that_of_the_published_model(checkpoint):
    config = checkpoint.config

    assert (config.num_layers, config.hidden_size, config.vocab_size) == (30, 576, 49152)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.rope_theta, config.rms_norm_eps) == (100_000.0, 1e-5)
    assert (config.max_position_embeddings, config.eos_token_ids) == (8192, (2,))
    assert config.tie_word_embeddings


def test_transformers_reads_the_folder_and_the_model_knows_its_capitals(checkpoint, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )

    output = model.generate(**prompt, max_new_tokens=8, do_sample=False)

    answer = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"


def test_the_chat_template_adds_the_models_own_system_prompt(tokenizer):
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )

    assert text == (
        "<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_special_tokens_are_single_ids(tokenizer):
    ids = tokenizer("<|im_start|>user\n<|endoftext|><|im_end|>").input_ids

    assert ids[0] == 1
    assert ids[-2:] == [0, 2]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "user\n"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)


def test_digits_are_tokens_of_their_own_and_do_not_split_the_spaces_before_them(tokenizer):
    assert tokenizer.tokenize("a  12 b") == ["a", "ĠĠ", "1", "2", "Ġb"]


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world! It's we'll they've",
        "naïve café, Ελληνικά, русский, עברית",
        "中文字符、日本語のテキスト、한국어",
        "family 👩‍👩‍👧 flag 🇫🇷 and thumbs 👍🏽",
        "def f(x):\n\tif x:\n        return [x ** y for y in x]\n\n\n",
        "  leading and trailing  \r\n",
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        "\x00\x01\x7f\u200b\ufeff",
    ],
)
def test_texts_without_digits_get_the_ids_transformers_gets_from_the_file(
    tokenizer, transformers_tokenizer, text
):
    assert tokenizer(text).input_ids == transformers_tokenizer(text).input_ids


# The published vocabulary has no token for these, nor for bytes that only higher planes use.
NO_TOKEN = "\x04\x06\x13\x14\x16\x1d"
HIGHEST_WITH_TOKENS = 0x3FFFF


@given(
    text=st.text(
        st.characters(codec="utf-8", max_codepoint=HIGHEST_WITH_TOKENS, exclude_characters=NO_TOKEN)
    )
)
def test_any_text_survives_its_tokens(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.parametrize("character", [*NO_TOKEN, chr(HIGHEST_WITH_TOKENS + 1)])
def test_a_character_the_vocabulary_cannot_spell_is_dropped_not_refused(tokenizer, character):
    ids = tokenizer(f"a{character}b").input_ids

    assert tokenizer.decode(ids).startswith("a")
    assert tokenizer.decode(ids).endswith("b")
    assert character not in tokenizer.decode(ids)
