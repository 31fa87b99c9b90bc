"""A target that always taps, and what its tapped layers held for each request."""

import torch
from torch import Tensor

from dflash.batch import Batch
from dflash.schedule import Schedule
from dflash.target import Target, TargetFacts, TargetOutput


class FeatureTap:
    """Stands between engine and target: taps every forward, and sorts the rows by request.

    No pass is added: the rows are those of the steps that decode. A token that is computed again
    after a preemption overwrites its own row.
    """

    def __init__(self, target: Target, taps: tuple[int, ...]) -> None:
        """Stand in front of a target.

        Args:
            target: What computes.
            taps: Layers to record, in the order in which their rows are joined.
        """
        self._target = target
        self._taps = taps
        self._rows = torch.empty(0)
        self._features: dict[str, Tensor] = {}

    @property
    def facts(self) -> TargetFacts:
        """The target's facts."""
        return self._target.facts

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Compute the batch with the recorded layers tapped beside those that were asked for."""
        output = self._target.forward(batch, tuple(dict.fromkeys((*self._taps, *taps))))
        self._rows = torch.cat([output.hidden[layer] for layer in self._taps], dim=1)
        return output

    def observe(self, schedule: Schedule, logits: Tensor) -> None:
        """Enter the last forward's rows under their requests; the engine's ``observe``."""
        start = 0
        for turn in schedule.turns:
            request, run = turn.sequence.request, turn.run
            rows = self._rows[start : start + len(run.token_ids)]
            if request.request_id not in self._features:
                most = len(request.prompt_token_ids) + request.max_tokens
                self._features[request.request_id] = rows.new_zeros(most, rows.shape[1])
            self._features[request.request_id][run.start : run.start + len(rows)] = rows
            start += len(rows)

    def take(self, request_id: str, num_tokens: int) -> Tensor:
        """Return a request's rows and forget them.

        Args:
            request_id: A request that has ended.
            num_tokens: Tokens of its prompt and answer, the stop token included. The last one was
                chosen and never computed.

        Returns:
            ``[num_tokens, taps * hidden]`` in the target's type, zero at the last token.
        """
        features = self._features.pop(request_id)
        return torch.cat([features[: num_tokens - 1], torch.zeros_like(features[:1])])
