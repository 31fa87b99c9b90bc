"""One training run from a folder of sequences: where it starts, when it saves, what it reports."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from dflash.train.export import export_drafter
from dflash.train.head import DraftHead, draft_head
from dflash.train.held_out import Tally, serve_again, total
from dflash.train.model import Drafter
from dflash.train.run_state import RunState, load_state, log_line, save_state
from dflash.train.sequences import TappedSequence
from dflash.train.shape import DrafterShape
from dflash.train.shortlist import shortlist
from dflash.train.stored import StoredSequences
from dflash.train.trainer import Plan, StepReport, Trainer


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run reads and writes.

    Attributes:
        sequences: Folder of shards to train on; it may grow while the run goes on.
        held_out: Folder of shards to measure on.
        run: Folder of the state and the curve.
        export: Folder of the drafter; None writes none.
    """

    sequences: Path
    held_out: Path
    run: Path
    export: Path | None


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a run does what is not training.

    Attributes:
        save_s: Seconds between states (and drafters exported).
        measure_s: Seconds between measurements on the held-out sequences.
        held_out: Most held-out sequences measured.
    """

    save_s: float
    measure_s: float
    held_out: int


def fit(
    shape: DrafterShape,
    frozen: Frozen,
    places: Places,
    plan: Plan,
    pace: Pace,
    draft_vocab_size: int,
) -> None:
    """Train until the plan is done, going on from the run's last state if it has one.

    Args:
        shape: Sizes of a new drafter; a run that goes on keeps its own.
        frozen: The target's part.
        places: Where to read and write.
        plan: How to train.
        pace: How often to save and to measure.
        draft_vocab_size: Ids a new drafter may predict.
    """
    sequences = StoredSequences(places.sequences)
    held_out = _spread(StoredSequences(places.held_out), pace.held_out)
    state = load_state(places.run)
    ids = state.shortlist if state else _shortlist(sequences, frozen, draft_vocab_size)
    head = draft_head(frozen.head, ids)
    torch.manual_seed(plan.seed)
    trainer = Trainer(Drafter(state.shape if state else shape), frozen.embedding, head, plan)
    if state:
        trainer.restore(state)
    _save(trainer.state(frozen.fingerprint), places)
    bar = tqdm(total=1000, initial=int(1000 * trainer.progress), unit="‰", file=sys.stderr)
    saved = measured = time.monotonic()
    report = None
    while trainer.progress < 1.0:
        report = trainer.train_step(sequences)
        _show(bar, trainer, report)
        if report.step % 20 == 0:
            log_line(places.run, _entry(trainer, report))
        if time.monotonic() - measured > pace.measure_s:
            sequences.refresh()
            log_line(places.run, _measured(trainer, head, frozen, held_out))
            measured = time.monotonic()
        if time.monotonic() - saved > pace.save_s:
            _save(trainer.state(frozen.fingerprint), places)
            saved = time.monotonic()
    bar.close()
    log_line(places.run, _measured(trainer, head, frozen, held_out))
    _save(trainer.state(frozen.fingerprint), places)


def _shortlist(sequences: StoredSequences, frozen: Frozen, size: int) -> Tensor:
    return shortlist(sequences.response_counts(len(frozen.head)), frozen.always, size)


def _spread(sequences: StoredSequences, count: int) -> list[TappedSequence]:
    stride = max(1, len(sequences) // count)
    return [sequences[index] for index in range(0, len(sequences), stride)][:count]


def _save(state: RunState, places: Places) -> None:
    save_state(places.run, state)
    if places.export:
        export_drafter(state, places.export)


def _show(bar: tqdm, trainer: Trainer, report: StepReport) -> None:
    bar.update(int(1000 * trainer.progress) - bar.n)
    speed = trainer.tokens / trainer.elapsed_s
    bar.set_postfix(
        step=report.step,
        loss=f"{report.base_loss:.3f}",
        selector=f"{report.selector_loss:.3f}",
        tokens_s=f"{speed:.0f}",
    )


def _entry(trainer: Trainer, report: StepReport) -> Mapping[str, float]:
    return {
        "step": report.step,
        "elapsed_s": round(trainer.elapsed_s, 1),
        "tokens": trainer.tokens,
        "base_loss": round(report.base_loss, 4),
        "selector_loss": round(report.selector_loss, 4),
        "likelihood": round(report.likelihood, 4),
        "grad_norm": round(report.grad_norm, 3),
        "learning_rate": trainer.plan.learning_rate_at(trainer.progress),
    }


def _measured(
    trainer: Trainer, head: DraftHead, frozen: Frozen, held_out: Sequence[TappedSequence]
) -> Mapping[str, object]:
    second = trainer.second_version
    tallies = [
        serve_again(trainer.drafter, head, frozen.embedding, sequence, second)
        for sequence in held_out
    ]
    whole = total(tallies)
    kinds: dict[str, list[Tally]] = {}
    for sequence, tally in zip(held_out, tallies, strict=True):
        kinds.setdefault(sequence.kind, []).append(tally)
    slots = zip(whole.accepted, whole.reached, strict=True)
    return {
        "step": trainer.step,
        "elapsed_s": round(trainer.elapsed_s, 1),
        "held_out": round(whole.acceptance_length, 3),
        "by_kind": {
            kind: round(total(of_kind).acceptance_length, 3)
            for kind, of_kind in sorted(kinds.items())
        },
        "by_slot": [round(accepted / max(reached, 1), 3) for accepted, reached in slots],
    }
