"""Settings of an engine with a tiny target and a drafter for it."""

from dataclasses import replace
from pathlib import Path

from benchmarks.rigs.tiny_drafter import TinyDrafter, write_tiny_drafter
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig, SpeculationConfig
from dflash.models.config import model_config_from_json
from tests.rigs.tiny_checkpoint import TINY_CONFIG, write_tiny_checkpoint

TARGET = model_config_from_json(TINY_CONFIG)


def drafter_config(folder: Path, **changes: object) -> EngineConfig:
    """Write a tiny target, and a drafter for it in the folder ``drafter`` beside it.

    Args:
        folder: Where.
        changes: Of the target's config.
    """
    target = TINY_CONFIG | changes
    write_tiny_drafter(folder / "drafter", TinyDrafter(), model_config_from_json(target))
    return EngineConfig(
        model=str(write_tiny_checkpoint(folder / "model", config=target)),
        dtype=Dtype.FLOAT32,
        num_threads=1,
        cache_dir=str(folder / "cache"),
        kv_cache=KVCacheConfig(memory_gib=0.002),
        limits=EngineLimits(max_num_seqs=4, max_num_batched_tokens=64),
        speculation=SpeculationConfig(str(folder / "drafter")),
    )


def with_drafter(
    config: EngineConfig, drafter: str | tuple[str, ...] | None, draft_length: int = 0
) -> EngineConfig:
    return replace(config, speculation=SpeculationConfig(drafter, draft_length))
