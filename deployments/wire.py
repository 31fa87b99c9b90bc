"""The values that cross the handle between ingress and engine replica: small and plain."""

from dataclasses import dataclass
from typing import NamedTuple

from deployments.openai.errors import ApiError
from deployments.operators.report import ReplicaReport
from deployments.policy_status import PolicyStatus
from deployments.room import Room
from dflash.config import EngineLimits
from dflash.request import Decoded, TokenLogprobs
from dflash.speculation_report import SpeculationReport
from dflash.stats import LoopSnapshot


class Step(NamedTuple):
    """What one request gained in one step; a named tuple, because one crosses per step.

    Attributes:
        token_ids: New tokens in order. Empty in the first message, which only says that the
            engine took the request, and in a last one that brought no token.
        logprobs: One entry a token where the request asked for them.
        finish_reason: ``stop`` or ``length`` in the last message of a request that went well.
        num_cached_tokens: Prompt tokens taken from the prefix cache.
        error: In the last message of a request that did not.
        decoded: How it decoded, an entry for each of the engine's steps in which it did.
        queue_time_s: How long it waited before the engine began; told once.
        replica: Who took it; in the first message of each replica that does.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: str | None = None
    num_cached_tokens: int = 0
    error: ApiError | None = None
    decoded: tuple[Decoded, ...] = ()
    queue_time_s: float | None = None
    replica: str = ""

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self.finish_reason is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How far one replica's loading is.

    Attributes:
        replica: The replica's id.
        phase: What it does now, a word or two.
        fraction: Share of all loading done, in [0, 1].
        elapsed_s: Since its loading began, seconds.
        problem: Why it gave up; None while it has not.
    """

    replica: str
    phase: str
    fraction: float
    elapsed_s: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the ingress must know of the loaded model.

    Attributes:
        vocab_size: Ids are in ``[0, vocab_size)``.
        max_model_len: Most positions of a sequence, prompt and output together.
        exactness_mode: ``bitwise`` or ``relaxed``.
        exactness_form: Which form of the kernels keeps it.
        exactness_detail: A sentence: what was measured, or which operation is not exact.
        speculation: Which drafter drafts and how far, or why none does.
    """

    vocab_size: int
    max_model_len: int
    exactness_mode: str
    exactness_form: str
    exactness_detail: str
    speculation: SpeculationReport


@dataclass(frozen=True, slots=True)
class FilePart:
    """A piece of one tokenizer file; whole files can exceed a handle's message limit."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How one engine replica is, now.

    Attributes:
        is_healthy: False where there is work and no step.
        sentence: Why.
        pid: Process of the replica.
        num_running: Requests in the running set.
        num_waiting: Requests in the queue.
        num_pages_used: KV pages that hold tokens of live requests.
        num_pages_cached: KV pages that only the prefix cache holds.
        num_pages_total: KV pages there are.
        num_steps: Steps since the start.
        num_preemptions: Requests put back to the queue for want of pages.
        limits: The limits in force.
        user_config_problem: Why the last ``user_config``, or a part of it, was not taken; None
            where it was.
        replica: Its name, as pins call it.
        policy: What decides on drafts, and what it runs; None where the plan is fixed.
        room: What Serve's settings let it hold; None outside Serve.
        report: What operators see of it; None where nobody checked in.
        decisions: How many changed something, by the drafters before and after and the reason.
        steps: What its steps came to since its start; None where nobody asked.
    """

    is_healthy: bool
    sentence: str
    pid: int
    num_running: int
    num_waiting: int
    num_pages_used: int
    num_pages_cached: int
    num_pages_total: int
    num_steps: int
    num_preemptions: int
    limits: EngineLimits
    user_config_problem: str | None
    replica: str = ""
    policy: PolicyStatus | None = None
    room: Room | None = None
    report: ReplicaReport | None = None
    steps: LoopSnapshot | None = None
    decisions: tuple[tuple[tuple[str, str, str], int], ...] = ()
