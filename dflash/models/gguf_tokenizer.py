"""The tokenizer and chat template of a GGUF file, as a Hugging Face checkpoint holds them."""

from typing import Any

from gguf import GGUFReader, TokenType
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from dflash.models.gguf_llama import field


def tokenizer_from_gguf(reader: GGUFReader) -> Tokenizer:
    """Return the byte-level BPE tokenizer with its special tokens.

    Digits are split one by one, as the file's pre-tokenizer ``smollm`` asks and as the model
    was trained. The conversion in transformers leaves that out, which changes the ids of
    spaces before a number.
    """
    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == TokenType.CONTROL
        ]
    )
    return tokenizer


def tokenizer_config_from_gguf(reader: GGUFReader) -> dict[str, Any]:
    """Return the content of ``tokenizer_config.json``, the chat template among it."""
    tokens = field(reader, "tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[field(reader, "tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[field(reader, "tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[field(reader, "tokenizer.ggml.padding_token_id")],
        "unk_token": tokens[field(reader, "tokenizer.ggml.unknown_token_id")],
        "add_bos_token": field(reader, "tokenizer.ggml.add_bos_token"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": field(reader, "llama.context_length"),
        "chat_template": field(reader, "tokenizer.chat_template"),
    }
