"""Ask the reference implementation for its numbers: `python write_dflash_reference.py OUT.json`.

It runs in an environment that holds the PyPI package ``dflash`` 0.1.0 and not this one.
"""

import json
import sys
from pathlib import Path

import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from dflash_formulas import (
    ANCHOR,
    BLOCK,
    MASK,
    case_names,
    config_json,
    embedding,
    features,
    head,
    parts_of,
    tensors,
)
from torch import nn
from transformers import DynamicCache, Qwen3Config


def numbers_of(case: str) -> dict:
    version, kind, parts = parts_of(case)
    content = config_json(version, kind)
    model = (DFlashDraftModel if version == 1 else DFlash2DraftModel)(Qwen3Config(**content))
    published = {name.replace("codebook.weight", "codebook"): name for name in model.state_dict()}
    weights = tensors({new: tuple(model.state_dict()[old].shape) for new, old in published.items()})
    model.load_state_dict({published[name]: tensor for name, tensor in weights.items()})
    model.eval().float()
    output_head = nn.Linear(1, 1, bias=False)
    output_head.weight = nn.Parameter(head())

    scale = content["dflash_config"].get("input_embedding_scale", 1.0)
    block = embedding()[torch.tensor([ANCHOR] + [MASK] * (BLOCK - 1))] * scale
    cache, start = DynamicCache(), 0
    for length in parts:
        # Each part is followed by a block, whose keys and values are then thrown away.
        end = start + length
        hidden = model(
            position_ids=torch.arange(start, end + BLOCK)[None],
            noise_embedding=block[None],
            target_hidden=features(sum(parts))[None, start:end],
            past_key_values=cache,
            use_cache=True,
        )[:, 1:]
        cache.crop(-BLOCK)
        start = end
    logits = model.compute_logits(hidden, output_head)
    path = logits.argmax(-1)
    if version == 2:
        path, _, _ = model.propose(hidden, torch.tensor([ANCHOR]), output_head, 0.0)
    return {
        "raw_logits": [[float(f"{x:.8g}") for x in row] for row in output_head(hidden)[0].tolist()],
        "path": path[0].tolist(),
    }


if __name__ == "__main__":
    with torch.inference_mode():
        cases = {case: numbers_of(case) for case in case_names()}
    Path(sys.argv[1]).write_text(json.dumps(cases) + "\n")
