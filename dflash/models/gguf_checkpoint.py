"""A GGUF file written out as the files of a Hugging Face checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from safetensors.torch import save

from dflash.models.gguf_llama import config_from_gguf, tensors_from_gguf
from dflash.models.gguf_tokenizer import tokenizer_config_from_gguf, tokenizer_from_gguf
from dflash.models.manifest import FileRecord, record_of


def write_checkpoint(
    gguf: Path, folder: Path, on_tensor: Callable[[int, int], None]
) -> dict[str, FileRecord]:
    """Write the checkpoint's files into ``folder`` and return what each must hold.

    Args:
        gguf: A Llama-family GGUF file with a byte-level BPE tokenizer.
        folder: An empty folder.
        on_tensor: Called after each tensor with the number done and the number of all.
    """
    reader = GGUFReader(gguf)
    config = config_from_gguf(reader)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    contents = {
        "config.json": _as_json(config),
        "generation_config.json": _as_json(generation),
        "tokenizer.json": tokenizer_from_gguf(reader).to_str().encode("utf-8"),
        "tokenizer_config.json": _as_json(tokenizer_config_from_gguf(reader)),
        "model.safetensors": _weights(reader, on_tensor),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return {name: record_of(data) for name, data in contents.items()}


def _weights(reader: GGUFReader, on_tensor: Callable[[int, int], None]) -> bytes:
    tensors = {}
    for name, tensor in tensors_from_gguf(reader):
        tensors[name] = tensor
        on_tensor(len(tensors), len(reader.tensors))
    return save(tensors, metadata={"format": "pt"})


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
