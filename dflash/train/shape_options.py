"""What the command line says of a drafter's shape."""

import argparse

from dflash.errors import ConfigError
from dflash.models.config import ModelConfig
from dflash.train.mtp_shape import MtpShape
from dflash.train.shape import DrafterShape

# What a new run takes where an option is left out; a run that goes on keeps what it has.
DEFAULTS = {
    "seed": 0,
    "layers": 2,
    "block_size": 8,
    "draft_length": 3,
    "selector_rank": 32,
    "window": 512,
    "draft_vocab_size": 16384,
}


def chosen(options: argparse.Namespace, name: str) -> int:
    """Return an option's value, or its default where it was left out."""
    given = getattr(options, name)
    return DEFAULTS[name] if given is None else given


def shape_of(
    config: ModelConfig, taps: tuple[int, ...], options: argparse.Namespace
) -> DrafterShape | MtpShape:
    """Return the shape that the options of ``fit`` ask for.

    Args:
        config: The target's.
        taps: Layers whose outputs the sequences hold.
        options: Of the command line; None where one was left out.

    Raises:
        ConfigError: An option is missing or cannot work.
    """
    return (_chain_shape if options.drafter == "mtp" else _block_shape)(config, taps, options)


def _chain_shape(
    config: ModelConfig, taps: tuple[int, ...], options: argparse.Namespace
) -> MtpShape:
    return MtpShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        max_position_embeddings=config.max_position_embeddings,
        draft_length=chosen(options, "draft_length"),
        target_layer_ids=taps,
        num_target_layers=config.num_layers,
        vocab_size=config.vocab_size,
        sliding_window=chosen(options, "window"),
    )


def _block_shape(
    config: ModelConfig, taps: tuple[int, ...], options: argparse.Namespace
) -> DrafterShape:
    if options.mask_token_id is None:
        raise ConfigError(
            "--mask-token-id is missing; a dflash drafter needs an id that no text of the target "
            "holds"
        )
    if not 0 <= options.mask_token_id < config.vocab_size:
        raise ConfigError(
            f"--mask-token-id is {options.mask_token_id}, this target's ids are 0 to "
            f"{config.vocab_size - 1}; name one that no text of it holds"
        )
    return DrafterShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=chosen(options, "layers"),
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        max_position_embeddings=config.max_position_embeddings,
        block_size=chosen(options, "block_size"),
        mask_token_id=options.mask_token_id,
        target_layer_ids=taps,
        num_target_layers=config.num_layers,
        vocab_size=config.vocab_size,
        sliding_window=chosen(options, "window"),
        selector_rank=chosen(options, "selector_rank"),
    )
