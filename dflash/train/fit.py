"""One training run: steps until its plan is done, saved, measured and reported on the way."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from dflash.train.bounds import check_within
from dflash.train.export import export_drafter
from dflash.train.held_out import Tally, total
from dflash.train.run_state import log_line, save_state
from dflash.train.sequences import TappedSequence
from dflash.train.stored import StoredSequences
from dflash.train.trainer import StepReport, Trainer

_LOG_EVERY_STEPS = 20
_BAR_UNITS = 1000


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where a run writes, and how often.

    Attributes:
        run: Folder of its state and its curve.
        export: Folder of the drafter, rewritten with each state; None writes none.
        save_s: Seconds between states.
        measure_s: Seconds between measurements on held-out sequences.
    """

    run: Path
    export: Path | None
    save_s: float
    measure_s: float

    def __post_init__(self) -> None:
        check_within("--save-s", self.save_s, 0)
        check_within("--measure-s", self.measure_s, 0)


def fit(
    trainer: Trainer,
    sequences: StoredSequences,
    held_out: Sequence[TappedSequence],
    outlets: Outlets,
) -> None:
    """Train until the plan is done.

    Args:
        trainer: At the start of a run, or where one was left.
        sequences: What to train on; shards that arrive meanwhile are taken in.
        held_out: What to measure on.
        outlets: Where to write.

    Raises:
        DivergedError: A loss, a gradient or a parameter is not finite.
        EngineError: A folder cannot be written.
    """
    _save(trainer, outlets)
    saved = measured = time.monotonic()
    with tqdm(total=_BAR_UNITS, initial=_bar_units(trainer), unit="‰", file=sys.stderr) as bar:
        while trainer.progress < 1.0:
            report = trainer.train_step(sequences)
            _show(bar, trainer, report)
            if report.step % _LOG_EVERY_STEPS == 0:
                sequences.refresh()
                log_line(outlets.run, _entry(trainer, report, len(sequences)))
            if time.monotonic() - measured > outlets.measure_s:
                log_line(outlets.run, _measured(trainer, held_out))
                measured = time.monotonic()
            if time.monotonic() - saved > outlets.save_s:
                _save(trainer, outlets)
                saved = time.monotonic()
    log_line(outlets.run, _measured(trainer, held_out))
    _save(trainer, outlets)


def _save(trainer: Trainer, outlets: Outlets) -> None:
    state = trainer.state()
    save_state(outlets.run, state)
    # Before a first step there is nothing learnt, and perhaps a good drafter in that place.
    if outlets.export and state.step:
        export_drafter(state, outlets.export)


def _bar_units(trainer: Trainer) -> int:
    return int(_BAR_UNITS * trainer.progress)


def _show(bar: tqdm, trainer: Trainer, report: StepReport) -> None:
    bar.set_postfix(
        step=report.step,
        loss=f"{report.base_loss:.3f}",
        selector=f"{report.selector_loss:.3f}",
        tokens_s=f"{trainer.tokens / trainer.elapsed_s:.0f}",
        refresh=False,
    )
    bar.update(_bar_units(trainer) - bar.n)


def _entry(trainer: Trainer, report: StepReport, num_sequences: int) -> Mapping[str, float]:
    return {
        "step": report.step,
        "elapsed_s": round(trainer.elapsed_s, 1),
        "tokens": trainer.tokens,
        "sequences": num_sequences,
        "base_loss": round(report.base_loss, 4),
        "selector_loss": round(report.selector_loss, 4),
        "likelihood": round(report.likelihood, 4),
        "grad_norm": round(report.grad_norm, 3),
        "learning_rate": trainer.plan.learning_rate_at(trainer.progress),
    }


def _measured(trainer: Trainer, held_out: Sequence[TappedSequence]) -> Mapping[str, object]:
    kinds: dict[str, list[Tally]] = {}
    for sequence in held_out:
        tally = trainer.serve_again(sequence)
        kinds.setdefault(sequence.kind, []).append(tally)
    whole = total([tally for tallies in kinds.values() for tally in tallies])
    slots = zip(whole.accepted, whole.reached, strict=True)
    return {
        "step": trainer.step,
        "elapsed_s": round(trainer.elapsed_s, 1),
        "held_out": round(whole.acceptance_length, 3),
        "by_kind": {
            kind: round(total(tallies).acceptance_length, 3)
            for kind, tallies in sorted(kinds.items())
        },
        "by_slot": [round(accepted / max(reached, 1), 3) for accepted, reached in slots],
    }
