"""How long requests take on one replica, from what it sees of them itself."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.operators.report import LatencyReport

_WINDOW_S = 60.0
# More requests in a minute are represented by the newest of them.
_MOST = 4096


@dataclass(slots=True)
class RequestClock:
    """The times of one request, entered as it goes.

    Attributes:
        began_s: When it arrived, seconds.
        first_s: When its first token came; None before.
        last_s: When its newest came.
        num_further: Tokens in the messages after the first that had some.
    """

    began_s: float
    first_s: float | None = None
    last_s: float = 0.0
    num_further: int = 0

    def note(self, num_tokens: int, now_s: float) -> None:
        """Enter the tokens of one message."""
        if not num_tokens:
            return
        self.last_s = now_s
        if self.first_s is None:
            # What came with the first token took no time of its own.
            self.first_s = now_s
        else:
            self.num_further += num_tokens


class LatencyWindow:
    """The requests that ended within the last minute. Used on the event loop only."""

    def __init__(self) -> None:
        self._ended: deque[tuple[float, float, float | None]] = deque(maxlen=_MOST)

    def enter(self, times: RequestClock, now_s: float) -> None:
        """Enter a request that ended, or that its client left; one without a token says nothing."""
        if times.first_s is None:
            return
        further = times.num_further
        tpot_s = (times.last_s - times.first_s) / further if further else None
        self._ended.append((now_s, times.first_s - times.began_s, tpot_s))

    def report(self, now_s: float) -> LatencyReport:
        """Return the quantiles of the last minute."""
        recent = [each for each in self._ended if now_s - each[0] <= _WINDOW_S]
        ttfts = sorted(ttft_s for _, ttft_s, _ in recent)
        tpots = sorted(tpot_s for _, _, tpot_s in recent if tpot_s is not None)
        return LatencyReport(
            len(recent),
            _quantile(ttfts, 0.5),
            _quantile(ttfts, 0.95),
            _quantile(tpots, 0.5),
            _quantile(tpots, 0.95),
        )


def _quantile(ascending: Sequence[float], share: float) -> float | None:
    """Return the least value that a share of all is not above; None of none."""
    if not ascending:
        return None
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]
