"""Traces of arrivals, read from the published files."""

import csv
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from policy.errors import PolicyError
from policy.truth import Arrival

# Which content a request has changes slowly, as the mix of a service does; seconds.
_MIX_S = 60.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order they arrive.

    Attributes:
        arrivals: The requests, from 0 s on.
        clipped_share: Share of them that were longer than the simulated context.
    """

    arrivals: tuple[Arrival, ...]
    clipped_share: float

    @property
    def num_output_tokens(self) -> int:
        """Tokens that all requests emit."""
        return sum(arrival.num_output_tokens for arrival in self.arrivals)

    def at_rate(self, requests_per_s: float) -> "Trace":
        """Return it with its clock run faster or slower to a mean rate."""
        last_s = self.arrivals[-1].at_s or 1.0
        factor = len(self.arrivals) / last_s / requests_per_s
        scaled = tuple(replace(a, at_s=a.at_s * factor) for a in self.arrivals)
        return replace(self, arrivals=scaled)

    def at_once(self, num_requests: int) -> "Trace":
        """Return its first requests, all arriving at 0 s."""
        return replace(
            self, arrivals=tuple(replace(a, at_s=0.0) for a in self.arrivals[:num_requests])
        )

    def up_to(self, end_s: float) -> "Trace":
        """Return the requests that arrive before a time."""
        return replace(self, arrivals=tuple(a for a in self.arrivals if a.at_s < end_s))


def read_trace(path: Path, contents: Sequence[str], max_tokens: int, seed: int = 0) -> Trace:
    """Return a trace with a content drawn for each request.

    Traces carry no text. Each minute prefers one content in turn, and a third of its requests have
    any other.

    Args:
        path: A CSV with TIMESTAMP, ContextTokens and GeneratedTokens, or JSON lines with
            timestamp (ms), input_length and output_length.
        contents: Names of the contents.
        max_tokens: Longest prompt and answer together; prompts are clipped to it.
        seed: Of the draws.

    Raises:
        PolicyError: The file is neither, or holds no request.
    """
    draw, arrivals, num_clipped = random.Random(seed), [], 0
    for at_s, prompt, output in _rows(path):
        output = max(1, min(output, max_tokens // 2))
        num_clipped += prompt + output > max_tokens
        kind = contents[int(at_s // _MIX_S) % len(contents)]
        if draw.random() < 1 / 3:
            kind = draw.choice(contents)
        arrivals.append(Arrival(at_s, max(1, min(prompt, max_tokens - output)), output, kind))
    if not arrivals:
        raise PolicyError(f"--trace {path} holds no request; give one of the published traces")
    arrivals.sort(key=lambda arrival: arrival.at_s)
    start_s = arrivals[0].at_s
    return Trace(
        tuple(replace(arrival, at_s=arrival.at_s - start_s) for arrival in arrivals),
        num_clipped / len(arrivals),
    )


def _rows(path: Path) -> Iterator[tuple[float, int, int]]:
    """Yield time in seconds, prompt tokens and output tokens of each request."""
    try:
        with path.open(encoding="utf-8") as file:
            if path.suffix == ".jsonl":
                for line in file:
                    row = json.loads(line)
                    yield row["timestamp"] / 1e3, row["input_length"], row["output_length"]
                return
            for row in csv.DictReader(file):
                # Published with seven digits of a second, one more than a datetime takes.
                at = datetime.fromisoformat(row["TIMESTAMP"][:26])
                yield at.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"])
    except (OSError, KeyError, ValueError) as error:
        raise PolicyError(
            f"--trace {path} cannot be read ({error}); give a CSV with TIMESTAMP, ContextTokens "
            "and GeneratedTokens, or JSON lines with timestamp, input_length and output_length"
        ) from error
