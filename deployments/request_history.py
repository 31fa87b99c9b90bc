"""What became of each request's own drafts, as far back as it still says something."""

from collections.abc import Sequence
from dataclasses import dataclass

from dflash.plan import Decoding
from policy.signals import RequestSignal

# A request's grades count half after so many of them.
_MOST_GRADES = 64


class RequestHistory:
    """What became of each request's own drafts lately."""

    def __init__(self) -> None:
        self._known: dict[str, _Record] = {}

    def see(self, decoding: Sequence[Decoding]) -> None:
        """Enter a step. A request that does not decode in it is forgotten."""
        known: dict[str, _Record] = {}
        for request in decoding:
            record = self._known.get(request.request_id)
            if record is None:
                record = _Record(request.num_drafted, request.num_accepted)
            else:
                record.see(request.num_drafted, request.num_accepted)
            known[request.request_id] = record
        self._known = known

    def signals(self, decoding: Sequence[Decoding]) -> tuple[RequestSignal, ...]:
        """Return what the policy is told of the requests of the step that was seen last."""
        return tuple(self._signal(request) for request in decoding)

    def _signal(self, request: Decoding) -> RequestSignal:
        record = self._known[request.request_id]
        return RequestSignal(
            request.request_id,
            ceiling=request.max_draft_length,
            num_context_tokens=request.num_tokens,
            num_graded=record.num_graded,
            num_accepted=record.num_accepted,
            num_steps_ungraded=record.num_steps_ungraded,
        )


@dataclass(slots=True)
class _Record:
    """One request: what was counted up to the last step, and grades lately."""

    drafted_before: int
    accepted_before: int
    num_graded: int = 0
    num_accepted: int = 0
    num_steps_ungraded: int = 0

    def see(self, num_drafted: int, num_accepted: int) -> None:
        drafted, accepted = num_drafted - self.drafted_before, num_accepted - self.accepted_before
        self.drafted_before, self.accepted_before = num_drafted, num_accepted
        if drafted == 0:
            self.num_steps_ungraded += 1
            return
        # The first wrong one is graded too; behind it nothing is known.
        self.num_graded += min(drafted, accepted + 1)
        self.num_accepted += accepted
        self.num_steps_ungraded = 0
        if self.num_graded > _MOST_GRADES:
            self.num_graded //= 2
            self.num_accepted //= 2
