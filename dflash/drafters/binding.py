"""Whether a drafter belongs to a target, and if not, why."""

from pathlib import Path

from dflash.drafters.checkpoint import DrafterCheckpoint, DrafterConfig, open_drafter_checkpoint
from dflash.drafters.config import DFlashConfig
from dflash.errors import CheckpointError
from dflash.models.config import ModelConfig


def open_bound_drafter(folder: Path, config: ModelConfig, fingerprint: str) -> DrafterCheckpoint:
    """Return a drafter's checkpoint that belongs to a target, checked but not yet read.

    Args:
        folder: Where it lies.
        config: The target's.
        fingerprint: Of the target's checkpoint.

    Raises:
        CheckpointError: The checkpoint is wrong in itself, or another target's.
    """
    checkpoint = open_drafter_checkpoint(folder)
    reason = why_inactive(checkpoint.config, config, fingerprint)
    if reason is not None:
        raise CheckpointError(f"{folder} cannot draft here: {reason}; use a drafter made for it")
    return checkpoint


def why_inactive(
    drafter: DrafterConfig, target: ModelConfig, target_fingerprint: str
) -> str | None:
    """Return why a drafter cannot draft for a target, as a sentence; None where it can.

    Args:
        drafter: The drafter's config.
        target: The target's.
        target_fingerprint: Of the target's checkpoint.
    """
    if isinstance(drafter, DFlashConfig) and (reason := _what_it_lacks(drafter, target)):
        return reason
    facts = (
        ("hidden_size", drafter.hidden_size, target.hidden_size),
        ("vocab_size", drafter.vocab_size, target.vocab_size),
        ("num_target_layers", drafter.num_target_layers, target.num_layers),
        ("target_fingerprint", drafter.target_fingerprint, target_fingerprint),
    )
    for key, its, ours in facts:
        if its is not None and its != ours:
            return f"the drafter was made for a target with {key} {its}, this target's is {ours}"
    return None


def _what_it_lacks(drafter: DFlashConfig, target: ModelConfig) -> str | None:
    """Return what a block drafter would read of the target and the target does not have."""
    if drafter.mask_token_id >= target.vocab_size:
        return (
            f"the drafter's mask_token_id is {drafter.mask_token_id}, this target's embedding "
            f"table has rows 0 to {target.vocab_size - 1}"
        )
    deepest = max(drafter.target_layer_ids)
    if deepest >= target.num_layers:
        return (
            f"the drafter's target_layer_ids tap layer {deepest}, this target has layers 0 to "
            f"{target.num_layers - 1}"
        )
    return None
