"""A Llama checkpoint of a few kilobytes, whole or with a chosen part made wrong."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from dflash.models.config import model_config_from_json, tensor_shapes

TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny_tensors(config: dict | None = None, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator).to(torch.bfloat16)
        for name, shape in tensor_shapes(model_config_from_json(config or TINY_CONFIG)).items()
    }


def write_tiny_checkpoint(
    folder: Path, tensors: dict[str, Tensor] | None = None, config: dict | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or TINY_CONFIG))
    save_file(tensors or tiny_tensors(config), folder / "model.safetensors")
    return folder


def write_sharded_checkpoint(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """Write two files and the index that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG))
    weight_map = {}
    for shard in range(2):
        name = f"model-{shard + 1:05}-of-00002.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[shard::2]}
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
