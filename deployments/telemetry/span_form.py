"""A request's record as attributes and events of a span; no prompt and no answer is in either."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from deployments.request_record import Asked, DraftCounts, RequestRecord

Attribute = str | bool | int | float | tuple[str, ...] | tuple[int, ...]

PROVIDER: Final = "dflash-serve"
# The conventions know operations, not paths.
OPERATIONS: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
}


@dataclass(frozen=True, slots=True)
class Event:
    """A moment of a request.

    Attributes:
        name: What happened.
        at_s: Since the epoch, seconds.
        attributes: More of it.
    """

    name: str
    at_s: float
    attributes: Mapping[str, Attribute]


def attributes_of(record: RequestRecord) -> dict[str, Attribute]:
    """Return what a request's span says, in the words of the GenAI conventions where they have one.

    They have none for speculation, so those are ours.
    """
    timings = {
        "gen_ai.response.time_to_first_chunk": record.first_token_s,
        "dflash.latency.queue_s": record.queue_time_s,
        "dflash.latency.time_per_output_token_s": record.time_per_output_token_s,
        "dflash.latency.e2e_s": record.duration_s,
    }
    return {
        **({} if record.asked is None else _asked(record.asked)),
        **({"http.response.status_code": record.status} if record.status else {}),
        **({} if record.error_code is None else {"error.type": record.error_code}),
        "gen_ai.response.finish_reasons": record.finish_reasons,
        "gen_ai.usage.output_tokens": record.num_completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.num_cached_tokens,
        "dflash.response.chunks": record.num_chunks,
        "dflash.replicas": record.replicas,
        **{name: value for name, value in timings.items() if value is not None},
        **_speculation(record.drafts),
    }


def events_of(record: RequestRecord) -> Iterator[Event]:
    """Yield the moments of a request in their order."""
    start_s = record.arrived_at_s
    if record.queue_end_s is not None:
        yield Event("queue end", start_s + record.queue_end_s, {})
    if record.first_token_s is not None:
        yield Event("first token", start_s + record.first_token_s, {})
    for change in record.drafts.plan_changes:
        attributes = {"dflash.from": change.drafter_from, "dflash.to": change.drafter_to}
        yield Event("plan change", start_s + change.at_s, attributes)
    yield Event("finish", start_s + record.duration_s, {"dflash.reason": _reason(record)})


def _reason(record: RequestRecord) -> str:
    return record.error_code or ", ".join(record.finish_reasons) or str(record.status)


def _asked(asked: Asked) -> dict[str, Attribute]:
    sampling, most = asked.sampling, asked.max_draft_length
    return {
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": asked.model,
        "gen_ai.response.model": asked.model,
        "gen_ai.response.id": asked.request_id,
        "gen_ai.request.stream": asked.is_stream,
        "gen_ai.request.choice.count": asked.num_choices,
        "gen_ai.request.max_tokens": asked.max_tokens,
        # Seeds have 64 bits, and attributes have a sign.
        "gen_ai.request.seed": asked.seed if asked.seed < 1 << 63 else str(asked.seed),
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.usage.input_tokens": asked.num_prompt_tokens,
        **({} if most is None else {"dflash.spec.max_draft_length": most}),
    }


def _speculation(drafts: DraftCounts) -> dict[str, Attribute]:
    length = drafts.acceptance_length
    return {
        "dflash.spec.steps": drafts.num_drafting_steps,
        "dflash.spec.draft_tokens": drafts.num_draft_tokens,
        "dflash.spec.accepted_tokens": drafts.num_accepted_tokens,
        "dflash.spec.accepted_per_position": drafts.accepted_per_position,
        "dflash.spec.plan_changes": drafts.num_plan_changes,
        **({} if length is None else {"dflash.spec.acceptance_length": length}),
        **{f"dflash.spec.mode.{name}.steps": steps for name, steps in drafts.steps.items()},
        **{f"dflash.spec.inactive.{why}": n for why, n in drafts.inactive_reasons.items()},
    }
