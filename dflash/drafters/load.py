"""From a drafter's folder and a loaded target to a drafter ready to propose."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dflash.config import EngineConfig
from dflash.drafters.borrowed import DrafterWeights, borrowed_names, embedding_table
from dflash.drafters.checkpoint import CODEBOOKS, DrafterCheckpoint
from dflash.drafters.choice import ChosenDrafter
from dflash.drafters.compiled_walk import walk
from dflash.drafters.config import DFlashConfig
from dflash.drafters.config_values import MAX_CANDIDATES
from dflash.drafters.dflash import DFlashDrafter
from dflash.drafters.dflash_program import block_program, context_program
from dflash.drafters.held import HeldDrafter
from dflash.drafters.mtp import MtpDrafter
from dflash.drafters.mtp_config import MtpConfig
from dflash.drafters.mtp_program import mtp_programs
from dflash.drafters.names import OWN
from dflash.drafters.sizes import drafter_sizes
from dflash.drafters.walk import Scoring, Selector
from dflash.forms import Form, Parts
from dflash.kernels.arena import Arena
from dflash.kernels.pages import PAGE_SIZE, allocate_pages, rotary_table
from dflash.models.config import ModelConfig
from dflash.program import Program


@dataclass(frozen=True, slots=True)
class Lender:
    """A loaded target as its drafter sees it: what it is checked against, and what it lends.

    Attributes:
        config: The target's config.
        fingerprint: Of its checkpoint.
        program: Its forward.
        weight: Returns one of its tensors by name.
        form: The form it runs in.
        dtype: Type of weights, activations and pages.
        num_pages: KV pages it has.
        max_model_len: Most positions of a sequence.
    """

    config: ModelConfig
    fingerprint: str
    program: Program
    weight: Callable[[str], Tensor]
    form: Form
    dtype: torch.dtype
    num_pages: int
    max_model_len: int


def held_drafter(chosen: ChosenDrafter, lender: Lender, config: EngineConfig) -> HeldDrafter:
    """Return a chosen drafter loaded, and so that it can be again.

    Args:
        chosen: For this target.
        lender: What it drafts for.
        config: The settings.

    Raises:
        EngineError: It cannot be loaded.
    """
    checkpoint, limits = chosen.checkpoint, config.limits
    sizes = drafter_sizes(
        checkpoint.config, lender.program, limits, config.dtype, lender.max_model_len
    )
    return HeldDrafter(
        partial(load_drafter, checkpoint, lender, limits.max_num_seqs),
        context_bytes=sizes.kv_bytes(lender.num_pages),
        weights_bytes=sizes.weights_bytes,
    )


def load_drafter(
    checkpoint: DrafterCheckpoint, target: Lender, max_runs: int
) -> DFlashDrafter | MtpDrafter:
    """Return a drafter ready to propose, with an empty context.

    Args:
        checkpoint: As `open_bound_drafter` returned it for this target.
        target: What it drafts for.
        max_runs: Most draft blocks of one pass; each has a scratch page.

    Raises:
        CheckpointError: A weight is not finite, or differs where it should be the target's.
        KernelError: The target's form cannot take a width of the drafter.
    """
    ids = checkpoint.target_ids()
    weight = DrafterWeights(checkpoint, target.program, target.weight, ids, target.dtype)
    weight.check_copies()
    match checkpoint.config:
        case MtpConfig() as config:
            return _mtp(config, weight, target)
        case config:
            return _dflash(config, weight, target, max_runs)


def _mtp(config: MtpConfig, weight: DrafterWeights, target: Lender) -> MtpDrafter:
    arena = Arena()
    pages = allocate_pages(config.attention, target.num_pages, target.dtype, arena)
    states = arena.zeros((target.num_pages * PAGE_SIZE, config.hidden_size), target.dtype)
    # The last link of a chain from the last position lies beyond it.
    rotary = rotary_table(config.attention, target.max_model_len + config.max_draft_length)
    form = target.form.for_drafter()
    context, first_link, next_link = (
        form.executor(Parts(program, weight, pages, rotary))
        for program in mtp_programs(config, target.program)
    )
    return MtpDrafter(
        config=config,
        num_target_layers=target.config.num_layers,
        embedding=form.table(embedding_table(target.program), weight, target.dtype),
        context=context,
        first_link=first_link,
        next_link=next_link,
        walk=walk,
        scoring=Scoring(
            num_candidates=MAX_CANDIDATES,
            multiplier=1.0,
            softcap=None,
            target_ids=weight.target_ids,
            selector=None,
        ),
        states=states,
        pages=pages,
    )


def _dflash(
    config: DFlashConfig, weight: DrafterWeights, target: Lender, max_runs: int
) -> DFlashDrafter:
    pages = allocate_pages(config.attention, target.num_pages + max_runs, target.dtype)
    # The block of the last position of the longest sequence reaches beyond it.
    rotary = rotary_table(config.attention, target.max_model_len + config.block_size)
    form = target.form.for_drafter()
    programs = (
        context_program(config),
        block_program(config, borrowed_names(config, target.program)),
    )
    context, block = (form.executor(Parts(program, weight, pages, rotary)) for program in programs)
    return DFlashDrafter(
        config=config,
        context=context,
        block=block,
        walk=walk,
        scoring=Scoring(
            num_candidates=config.num_candidates,
            multiplier=config.output_multiplier,
            softcap=config.final_logit_softcapping,
            target_ids=weight.target_ids,
            selector=_selector(config, weight, target.dtype),
        ),
        max_runs=max_runs,
        pages=pages,
    )


def _selector(config: DFlashConfig, weight: DrafterWeights, dtype: torch.dtype) -> Selector | None:
    if not config.selector_rank:
        return None
    # Copies: what was read may lie in the mapped file.
    predecessors, successors = (
        weight(OWN + name).to(dtype, copy=True).contiguous() for name in CODEBOOKS
    )
    return Selector(predecessors, successors)
