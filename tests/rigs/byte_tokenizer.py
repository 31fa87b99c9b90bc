"""A small byte-level tokenizer with a chat template, trained in a blink, for tests of text."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|im_end|>"
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "Write a call as <tool_call> with its JSON.\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "{% for call in message.tool_calls %}<call>{{ call.function | tojson }}</call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if thinks %}<think>{% endif %}{% endif %}"
)
_TEXT = ["the quick brown fox jumps over the lazy dog. 世界 héllo wörld 😀 stop STOP"]


def byte_level_tokenizer() -> Tokenizer:
    """Return a byte-level BPE whose vocabulary has all bytes, so that it can spell anything."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|im_start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT * 20, trainer)
    return tokenizer


def fallback_tokenizer() -> Tokenizer:
    """Return a SentencePiece-like unigram tokenizer: word marks, and bytes for what is unknown."""
    words = ["▁", "▁hi", "▁there", "hi", "a", "b", "s", "t", "o", "p", "世", "界", "."]
    vocabulary = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    vocabulary += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    vocabulary += [(word, -float(rank)) for rank, word in enumerate(words, start=1)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """Return the files a checkpoint folder would hold."""
    config = {"eos_token": {"content": END}, "chat_template": TEMPLATE}
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }


def write_tokenizer(folder: Path) -> Tokenizer:
    """Write the byte-level tokenizer's files into a folder and return it."""
    tokenizer = byte_level_tokenizer()
    for name, content in tokenizer_files(tokenizer).items():
        (folder / name).write_bytes(content)
    return tokenizer
