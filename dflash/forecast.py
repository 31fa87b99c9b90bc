"""What of a configuration will fit, by part, before a weight is read."""

from dataclasses import dataclass

from dflash.config import EngineConfig
from dflash.drafters.choice import ChosenDrafter, reason_to_go_on
from dflash.drafters.sizes import drafter_sizes
from dflash.errors import ConfigError
from dflash.machine_memory import MachineMemory
from dflash.memory import MemoryPlan, plan_memory
from dflash.models.checkpoint import Checkpoint
from dflash.models.config import max_model_len
from dflash.models.registry import program_for


@dataclass(frozen=True, slots=True)
class Forecast:
    """What an engine will hold.

    Attributes:
        plan: By part.
        drafters: Those that fit, or why there is none.
    """

    plan: MemoryPlan
    drafters: tuple[ChosenDrafter, ...] | str


def forecast_of(
    config: EngineConfig,
    checkpoint: Checkpoint,
    chosen: tuple[ChosenDrafter, ...] | str,
    memory: MachineMemory,
) -> Forecast:
    """Return the forecast; drafters that nobody named are left out where they do not fit.

    Args:
        config: The settings.
        checkpoint: The target's.
        chosen: Its drafters, or why there is none.
        memory: What the engine may use, and what of it is taken already.

    Raises:
        ConfigError: The parts exceed the memory; the sum is written out.
    """
    sizes = (checkpoint.config, config, memory.total_bytes, memory.used_bytes)
    if isinstance(chosen, str):
        return Forecast(plan_memory(*sizes), chosen)
    length = max_model_len(checkpoint.config, config.max_model_len)
    target = program_for(checkpoint.config)
    added = [
        drafter_sizes(each.checkpoint.config, target, config.limits, config.dtype, length)
        for each in chosen
    ]
    try:
        return Forecast(plan_memory(*sizes, added), chosen)
    except ConfigError as error:
        reason = reason_to_go_on(config, error)
        fewer = chosen[:-1] or f"with {chosen[0].name}, {reason}"
        return forecast_of(config, checkpoint, fewer, memory)
