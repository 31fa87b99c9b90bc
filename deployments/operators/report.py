"""What a replica and an ingress tell each other at a check-in, beside whether requests live."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deployments.operators.orders import Orders, StandingPin
from policy.decision import Realised
from policy.log import LogEntry


@dataclass(frozen=True, slots=True)
class Briefing:
    """What an ingress tells every replica.

    Attributes:
        orders: All that is ordered, as far as the ingress knows.
        known: Number of the newest decision that it has, by replica.
    """

    orders: Orders = field(default_factory=Orders)
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How many draft tokens of one drafter stay.

    Attributes:
        drafter: Its name.
        draft_lengths: What it can be asked for, ascending.
        num_graded: First draft tokens that were compared with the target's choice, old ones faded.
        by_place: Share of drafts that are right up to each place, as far as any was graded.
    """

    drafter: str
    draft_lengths: tuple[int, ...]
    num_graded: float
    by_place: tuple[float, ...]

    def length(self, draft_length: int) -> float:
        """Return the tokens of a verify run, extra one included."""
        return 1.0 + sum(self.by_place[:draft_length])


@dataclass(frozen=True, slots=True)
class DeskReport:
    """What the policy of a replica does, and what it did since it was last asked.

    Attributes:
        home: The arm in force, beneath a trial.
        since_s: For how long, seconds.
        newest: The newest decision, whether or not it changed anything; None before the first.
        num_repeats: Decisions since the last that changed something.
        expected_gain: What the arm in force is believed to be worth, plain decoding being 1; None
            where nothing is believed yet.
        realised: What the last trial has measured; None before one.
        realised_age_s: How long ago, seconds.
        acceptances: Of every drafter, the heaviest first.
        pin: What is ordered of this replica now; None where the law decides.
        floor_fraction: Share of memory below which nothing is drafted.
        clock_offset_s: Seconds since the epoch less the time of the decisions.
        decisions: Changes with their numbers, the oldest first.
    """

    home: str
    since_s: float
    newest: LogEntry | None
    num_repeats: int
    expected_gain: float | None
    realised: Realised | None
    realised_age_s: float
    acceptances: tuple[Acceptance, ...]
    pin: StandingPin | None
    floor_fraction: float
    clock_offset_s: float
    decisions: tuple[tuple[int, LogEntry], ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        """What can be pinned, plain decoding first."""
        lengths = (
            (each.drafter, length) for each in self.acceptances for length in each.draft_lengths
        )
        return ("plain", *(f"{drafter}:{length}" for drafter, length in lengths))


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Where the memory of a replica's device went.

    Attributes:
        parts: Bytes by component; they sum to the total.
        total_bytes: What the device has, or what this process may use of the machine.
        resident_bytes: What this process holds of the machine's memory.
        trouble: Why the device does not say how much is free, so that headroom is a guess.
    """

    parts: Mapping[str, int]
    total_bytes: int
    resident_bytes: int
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """How long the requests took that ended within the last minute.

    Attributes:
        num_requests: How many.
        ttft_p50_s: Half of them had their first token within it, seconds; None where none has.
        ttft_p95_s: 95 in 100 had.
        tpot_p50_s: As for the time of each further token.
        tpot_p95_s: As for that, 95 in 100.
    """

    num_requests: int = 0
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica tells an ingress.

    Attributes:
        orders: All that is ordered, as far as the replica knows, the ingress's own included.
        latency: How long requests take.
        memory: Where its memory went; None where it does not know.
        desk: What its policy does; None where its plan is fixed.
    """

    orders: Orders = field(default_factory=Orders)
    latency: LatencyReport = field(default_factory=LatencyReport)
    memory: MemoryReport | None = None
    desk: DeskReport | None = None
