"""Whether a run goes on with what it was begun with."""

import argparse
from pathlib import Path

from dflash.errors import ConfigError
from dflash.train.mtp_shape import MtpShape
from dflash.train.run_state import RunState

_FIELDS = {
    "layers": "num_layers",
    "block_size": "block_size",
    "draft_length": "draft_length",
    "selector_rank": "selector_rank",
    "window": "sliding_window",
    "mask_token_id": "mask_token_id",
}
# A chain's block is its draft length and one more, named by that.
_NOT_OF_CHAINS = ("block_size",)


def check_target(
    state: RunState, options: argparse.Namespace, fingerprint: str, taps: tuple[int, ...]
) -> None:
    """Refuse a state of another kind of drafter, another target or other taps.

    Args:
        state: Of the run.
        options: Of the command line.
        fingerprint: Of the target.
        taps: Layers whose outputs the sequences hold.

    Raises:
        ConfigError: It names the run's folder.
    """
    run, kind = options.run, "mtp" if isinstance(state.shape, MtpShape) else "dflash"
    if kind != options.drafter:
        raise ConfigError(
            f"--run {run} holds a drafter of kind {kind}, and --drafter is {options.drafter}; name "
            "another folder to begin a run"
        )
    if (state.target_fingerprint, state.shape.target_layer_ids) != (fingerprint, taps):
        raise ConfigError(
            f"--run {run} holds a drafter of another target or of other taps than --sequences; "
            "name another folder to begin a run"
        )


def check_sequences(state: RunState, folder: Path, num_sequences: int) -> None:
    """Refuse a folder that holds fewer sequences than the run has drawn from.

    Args:
        state: Of the run.
        folder: Of the sequences.
        num_sequences: How many it holds.

    Raises:
        ConfigError: It names the folder and both numbers.
    """
    known = state.draw["known"]
    if num_sequences < known:
        raise ConfigError(
            f"--sequences {folder} holds {num_sequences} sequences, and the run has drawn from "
            f"{known}; bring the missing shards back, or name another --run"
        )


def check_resumed(options: argparse.Namespace, state: RunState) -> None:
    """Refuse options that were given and that the run on disk was begun otherwise with.

    Args:
        options: Of the command line; None where one was left out.
        state: Of the run.

    Raises:
        ConfigError: It names the first such option, its value and the run's.
    """
    shape = state.shape
    found = {
        name: getattr(shape, field)
        for name, field in _FIELDS.items()
        if hasattr(shape, field) and not (isinstance(shape, MtpShape) and name in _NOT_OF_CHAINS)
    }
    found |= {"seed": state.seed, "draft_vocab_size": len(state.shortlist)}
    for name, value in found.items():
        given = getattr(options, name)
        if given is None or given == value:
            continue
        # A shortlist larger than the vocabulary is all of it.
        if name == "draft_vocab_size" and min(given, shape.vocab_size) == value:
            continue
        option = "--" + name.replace("_", "-")
        raise ConfigError(
            f"{option} is {given}, and --run {options.run} was begun with {value}; leave it out, "
            "or name another folder to begin a run"
        )
