"""What a configuration would load, from files alone: does it fit, and do target and drafter match.

The engine's own functions decide, the same as at start: nothing is loaded, fetched or converted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from deployments.strict import KeyPath, Problem
from dflash.cache_folder import cache_dir_from
from dflash.config import AUTO_DRAFTER, AUTO_LENGTH, EMBEDDED_MODEL, EngineConfig
from dflash.drafters.choice import ChosenDrafter, chosen_drafters
from dflash.errors import CheckpointError, ConfigError, EngineError, NotHereError
from dflash.forecast import Forecast, forecast_of
from dflash.machine_memory import MachineMemory
from dflash.memory import MIB, MemoryPlan
from dflash.models.checkpoint import Checkpoint, open_checkpoint
from dflash.models.embedded import is_converted
from dflash.models.hub import already_here

_MODEL: KeyPath = ("engine", "model")
_DRAFTER: KeyPath = ("engine", "speculation", "drafter")
_LENGTH: KeyPath = ("engine", "speculation", "draft_length")
_KV_CACHE: KeyPath = ("engine", "kv_cache", "memory_gib")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was found out.

    Attributes:
        problems: What start would refuse; paths are those of the settings.
        notes: What could not be looked into, and what will act otherwise than asked, in sentences.
        plain: Memory by part without a drafter; None where that is not known or does not fit.
        drafted: The same with the drafters that fit; None where there are none.
        drafters: Each of those, in words.
    """

    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    plain: MemoryPlan | None = None
    drafted: MemoryPlan | None = None
    drafters: tuple[str, ...] = ()


def predicted(config: EngineConfig, memory: MachineMemory) -> Prediction:
    """Return what an engine of these settings would hold, or why it would not start.

    Args:
        config: The settings.
        memory: What each engine may use, and what of it is taken.
    """
    try:
        target = _opened(config)
    except NotHereError as error:
        return Prediction(notes=(f"not checked: {error}",))
    except EngineError as error:
        return Prediction((Problem(_MODEL, f"{error}.", config.model),))
    alone, problem = _fit(config, target, "no drafter", memory)
    if alone is None:
        return Prediction((problem,) if problem else ())
    found = [*_drafter_problems(config, target)]
    problems = tuple(each for each in found if isinstance(each, Problem))
    notes = tuple(each for each in found if isinstance(each, str))
    if found:
        return Prediction(problems, notes, alone.plan)
    return _with_drafters(config, target, alone, memory)


def _opened(config: EngineConfig) -> Checkpoint:
    cache_dir = cache_dir_from(config.cache_dir)
    if config.model == EMBEDDED_MODEL and not is_converted(cache_dir):
        raise NotHereError(
            f"engine.model is {EMBEDDED_MODEL!r}, which `make setup` has not converted yet on this "
            "machine"
        )
    return open_checkpoint(config.model, cache_dir, from_hub=already_here)


def _fit(
    config: EngineConfig,
    target: Checkpoint,
    chosen: tuple[ChosenDrafter, ...] | str,
    memory: MachineMemory,
) -> tuple[Forecast | None, Problem | None]:
    try:
        return forecast_of(config, target, chosen, memory), None
    except ConfigError as error:
        first = str(error).split(maxsplit=1)[0]
        is_named = first.startswith("engine.")
        path: KeyPath = tuple(first.split(".")) if is_named else _KV_CACHE
        return None, Problem(path, f"{error}.")


def _drafter_problems(config: EngineConfig, target: Checkpoint) -> Iterator[Problem | str]:
    """Yield why drafters that are named cannot draft, each alone, and which are not here."""
    named = config.speculation.drafter
    if named in (None, AUTO_DRAFTER):
        return
    several = isinstance(named, tuple)
    for index, each in enumerate(named if several else (named,)):
        at: KeyPath = (*_DRAFTER, index) if several else _DRAFTER
        alone = replace(config, speculation=replace(config.speculation, drafter=each))
        try:
            chosen_drafters(alone, target, already_here)
        except NotHereError as error:
            yield f"not checked: {error}"
        except CheckpointError as error:
            yield Problem(at, f"{error}.", each)


def _with_drafters(
    config: EngineConfig, target: Checkpoint, alone: Forecast, memory: MachineMemory
) -> Prediction:
    try:
        chosen = chosen_drafters(config, target, already_here)
    except CheckpointError as error:
        return Prediction((Problem(_DRAFTER, f"{error}."),), plain=alone.plan)
    if isinstance(chosen, str):
        return Prediction(notes=(f"no drafter: {chosen}",), plain=alone.plan)
    both, problem = _fit(config, target, chosen, memory)
    if both is None:
        return Prediction((problem,) if problem else (), plain=alone.plan)
    if isinstance(both.drafters, str):
        return Prediction(notes=(f"no drafter: {both.drafters}",), plain=alone.plan)
    left_out = [each.name for each in chosen if each not in both.drafters]
    notes = [f"left out, for it does not fit: {name}" for name in left_out]
    notes += _length_notes(config, both.drafters)
    names = tuple(each.described for each in both.drafters)
    return Prediction((), tuple(notes), alone.plan, both.plan, names)


def _length_notes(config: EngineConfig, drafters: tuple[ChosenDrafter, ...]) -> Iterator[str]:
    length = config.speculation.draft_length
    reach = drafters[0].checkpoint.config.max_draft_length
    if length != AUTO_LENGTH and length > reach:
        yield (
            f"engine.speculation.draft_length is {length}, over the reach of {drafters[0].name}: "
            f"{reach} will be in force"
        )


def memory_table(prediction: Prediction, memory: MachineMemory) -> str:
    """Return memory by part as a table: with drafters, and without."""
    plans = {"plain": prediction.plain, "with drafters": prediction.drafted}
    columns = {name: plan for name, plan in plans.items() if plan is not None}
    heads = "".join(f"{name:>18}" for name in columns)
    lines = [f"  {'memory by part':<18}{heads}"]
    parts = [{**plan.parts, "total": plan.total_bytes} for plan in columns.values()]
    for part in parts[-1]:
        sizes = (sizes.get(part) for sizes in parts)
        cells = "".join(f"{'-' if size is None else _mib(size):>18}" for size in sizes)
        lines.append(f"  {part:<18}{cells}")
    pages = "".join(f"{plan.num_pages * plan.page_size:>18,}" for plan in columns.values())
    lines.append(f"  {'tokens in pages':<18}{pages}")
    lines.append(f"  of {memory.limited_by}, {_mib(memory.used_bytes)} of it taken already")
    return "\n".join(lines)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:,.1f} MiB"
