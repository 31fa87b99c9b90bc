"""The training loop: steps until the plan is done, with a checkpoint to go on from."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from dflash.train.batches import Batch, Draw, SequencePool, make_batch
from dflash.train.finite import check_loss
from dflash.train.frozen import FrozenTarget
from dflash.train.held_out import Tally, serve_again
from dflash.train.loss import Loss, Objective
from dflash.train.model import Drafter
from dflash.train.optimiser import DrafterOptimiser
from dflash.train.plan import Plan
from dflash.train.run_state import RunState
from dflash.train.sequences import TappedSequence

_CLIP = 1.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did.

    Attributes:
        step: Its number, from 1.
        base_loss: Of the slots' predictions.
        selector_loss: Of the selector; 0 before it takes part.
        likelihood: Mean likelihood of the first slot's labels.
        grad_norm: Length of the gradient before it was clipped.
    """

    step: int
    base_loss: float
    selector_loss: float
    likelihood: float
    grad_norm: float


class Trainer:
    """A drafter in training.

    Args:
        drafter: What to train, on the target's device.
        target: The target's part.
        plan: How to train.
        clock: Seconds from any start; only differences matter.
    """

    def __init__(
        self,
        drafter: Drafter,
        target: FrozenTarget,
        plan: Plan,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.drafter, self.target, self.plan = drafter, target, plan
        self.step, self.tokens, self.elapsed_s = 0, 0, 0.0
        self._clock = clock
        self._draw = Draw(plan.seed)
        # Batches are made on the CPU, so what they look up is kept there.
        self._predictable = (target.head.rows >= 0).cpu()
        self._optimiser = DrafterOptimiser(drafter, plan.learning_rate)

    @property
    def progress(self) -> float:
        """Share of the run that is done, in [0, 1]."""
        return self.plan.progress_at(self.step, self.elapsed_s)

    @property
    def second_version(self) -> bool:
        """Whether convolutions and selector take part by now."""
        return self.plan.is_second_version_at(self.progress)

    def train_step(self, sequences: SequencePool) -> StepReport:
        """Take one step.

        Args:
            sequences: All there are by now; they may grow between steps, at the end.

        Raises:
            DivergedError: Loss or gradient is not finite; no parameter was moved.
        """
        started = self._clock()
        batch = self._batch(sequences).to(self.target.device)
        self._optimiser.set_learning_rate(self.plan.learning_rate_at(self.progress))
        loss = self._loss(batch)
        self._optimiser.zero_grad()
        loss.total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), _CLIP)
        check_loss(self.step + 1, float(loss.total.detach()), float(norm))
        self._optimiser.step()
        tokens = batch.num_context + self.drafter.shape.block_size * len(batch.blocks.anchors)
        self.step, self.tokens = self.step + 1, self.tokens + tokens
        self.elapsed_s += self._clock() - started
        return StepReport(
            step=self.step,
            base_loss=float(loss.base.detach()),
            selector_loss=float(loss.selector.detach()),
            likelihood=float(loss.likelihoods[:, 0].mean()),
            grad_norm=float(norm),
        )

    def serve_again(self, sequence: TappedSequence) -> Tally:
        """Return how a held-out sequence would have been served by greedy drafts, as of now."""
        return serve_again(self.drafter, self.target, sequence, self.second_version)

    def state(self) -> RunState:
        """Return all that `restore` needs to go on as if never stopped, on any device."""
        return RunState(
            shape=self.drafter.shape,
            shortlist=self.target.head.ids.cpu(),
            target_fingerprint=self.target.fingerprint,
            seed=self.plan.seed,
            second_version=self.second_version,
            step=self.step,
            tokens=self.tokens,
            elapsed_s=self.elapsed_s,
            drafter={name: part.cpu() for name, part in self.drafter.state_dict().items()},
            optimiser=self._optimiser.state(),
            draw=self._draw.state(),
        )

    def restore(self, state: RunState) -> None:
        """Go on from a state. Convolutions and selector that took part take part from here on."""
        if state.second_version:
            self.plan = replace(self.plan, second_version_at=0.0)
        self.drafter.load_state_dict(state.drafter)
        self._optimiser.restore(state.optimiser)
        self._draw.restore(state.draw)
        self.step, self.tokens, self.elapsed_s = state.step, state.tokens, state.elapsed_s

    def _batch(self, sequences: SequencePool) -> Batch:
        plan = self.plan
        drawn = self._draw.next(plan.sequences_per_step, len(sequences))
        return make_batch(
            [sequences[index] for index in drawn],
            self._predictable,
            self.drafter.shape.block_size,
            plan.anchors_per_sequence,
            torch.Generator().manual_seed(plan.seed + self.step),
        )

    def _loss(self, batch: Batch) -> Loss:
        second = self.second_version
        selector = self.drafter.candidate_selector if second else None
        features = batch.features.to(self.target.embedding.dtype)
        taught = self.target.taught(features, batch.lengths)
        context = self.drafter.context(features, batch.lengths)
        hidden = self.drafter(context, batch.blocks, self.target.embedding, second)
        objective = Objective(self.target.head, self.plan.decay, selector)
        return objective(hidden, batch.labels, taught)
