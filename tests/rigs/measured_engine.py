"""An idle engine with two drafters, whose steps are to be measured."""

from dataclasses import replace

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import SCRIPTED, ScriptDrafter
from dflash.config import EngineLimits
from dflash.engine import Engine

LENGTHS = {"dflash2": (1, 7), "mtp": (2,)}


def idle(num_pages: int = 600, max_model_len: int = 2048, **scripts) -> Engine:
    """Return an engine whose drafters say the same of every row, unless a script says more."""
    model = HashLM(num_pages=num_pages, max_model_len=max_model_len)
    drafters = [
        ScriptDrafter(
            model.facts,
            lambda row: (1,) * 7,
            scripts.get(name, lambda row, right: right),
            model=model,
            facts=replace(SCRIPTED, name=name),
        )
        for name in LENGTHS
    ]
    return Engine(model, EngineLimits(max_num_seqs=4), drafters=drafters)


def nothing(_share: float) -> None:
    pass
