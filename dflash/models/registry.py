"""The model families we serve: one line a family."""

from collections.abc import Callable, Mapping

from dflash.errors import CheckpointError
from dflash.models.config import ModelConfig
from dflash.models.llama import llama_program
from dflash.program import Program

FAMILIES: Mapping[str, Callable[[ModelConfig], Program]] = {"llama": llama_program}


def program_for(config: ModelConfig) -> Program:
    """Return the forward of a checkpoint.

    Raises:
        CheckpointError: The checkpoint is of a family we do not serve.
    """
    build = FAMILIES.get(config.family)
    if build is None:
        raise CheckpointError(
            f"model family {config.family!r} is not served; known families: {', '.join(FAMILIES)}"
        )
    return build(config)
