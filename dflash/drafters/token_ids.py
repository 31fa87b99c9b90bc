"""Whether a drafter means the same tokens by its ids as its target, where its files tell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash.models.weight_files import read_json

_TOKENIZER = "tokenizer.json"


def why_other_tokens(drafter: Path, target: Path) -> str | None:
    """Return which token the two tokenizers number differently; None where none is known.

    Args:
        drafter: Its folder; one without a tokenizer uses its target's.
        target: The target's folder.

    Raises:
        CheckpointError: A tokenizer's file is not JSON.
    """
    if not (drafter / _TOKENIZER).exists() or not (target / _TOKENIZER).exists():
        return None
    own = _ids(read_json(target / _TOKENIZER))
    for token, token_id in _ids(read_json(drafter / _TOKENIZER)).items():
        if own.get(token) != token_id:
            there = f"id {own[token]}" if token in own else "missing"
            return f"its tokenizer has {token!a} as id {token_id}, in this target's it is {there}"
    return None


def _ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return the id of each token, those added later included."""
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    ids: dict[str, int] = {}
    if isinstance(vocab, Mapping):
        ids |= vocab
    elif isinstance(vocab, list):
        # Unigram: pairs of a token and its score, in the order of their ids.
        ids |= {pair[0]: index for index, pair in enumerate(vocab)}
    added = tokenizer.get("added_tokens") or []
    return ids | {each["content"]: each["id"] for each in added}
