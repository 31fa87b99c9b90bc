"""How a drafter's two forwards are laid out, and under which names they reach the target's."""

from benchmarks.rigs.tiny_drafter import TinyDrafter, tiny_drafter_json
from dflash.drafters.borrowed import borrowed_names
from dflash.drafters.config import dflash_config_from_json
from dflash.drafters.dflash_program import block_program, context_program
from dflash.drafters.names import LOGITS
from dflash.models.config import model_config_from_json
from dflash.models.registry import program_for
from dflash.program import Attend, Convolve, Embed, Linear
from tests.rigs.tiny_checkpoint import TINY_CONFIG

TARGET = model_config_from_json(TINY_CONFIG)


def test_the_programs_hold_what_their_version_has_and_no_more():
    for version in (1, 2):
        kind = TinyDrafter(version=version)
        config = dflash_config_from_json(tiny_drafter_json(kind, TARGET))
        names = borrowed_names(config, program_for(TARGET))
        context, block = context_program(config), block_program(config, names)

        convolutions = [each for each in block.operations if isinstance(each, Convolve)]
        assert len(convolutions) == (0 if version == 1 else 4 * kind.num_layers)
        assert block.outputs == ((LOGITS,) if version == 1 else (LOGITS, "selector_state"))
        assert context.outputs == ()
        assert context.attention.num_heads == 0
        assert not any(isinstance(each, Attend | Embed) for each in context.operations)


def test_what_a_drafter_borrows_keeps_the_targets_names():
    target = program_for(TARGET)
    config = dflash_config_from_json(tiny_drafter_json(TinyDrafter(), TARGET))
    reduced = dflash_config_from_json(tiny_drafter_json(TinyDrafter(draft_vocab_size=24), TARGET))
    tables = {each.weight for each in target.operations if isinstance(each, Embed)}
    matrices = {each.weights for each in target.operations if isinstance(each, Linear)}

    names = borrowed_names(config, target)

    assert names.embedding in tables
    assert (names.head,) in matrices
    assert borrowed_names(reduced, target).head.startswith("drafter.")
