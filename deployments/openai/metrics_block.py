"""What an answer says of itself: how long it took, and how it was decoded."""

from collections.abc import Mapping
from typing import Any

from deployments.request_record import DraftCounts, RequestRecord


def metrics_body(record: RequestRecord) -> dict[str, Any]:
    """Return the `metrics` object of an answer; what does not apply is null.

    The names under `speculative_decoding` are vLLM's, so that what reads those reads these.
    """
    gaps, per_token_s = record.gaps, record.time_per_output_token_s
    num_choices = 0 if record.asked is None else record.asked.num_choices
    return {
        "time_to_first_token_ms": _ms(record.first_token_s),
        "queue_time_ms": _ms(record.queue_time_s),
        "mean_itl_ms": _ms(gaps.total / gaps.count if gaps.count else None),
        "tokens_per_second": round(num_choices / per_token_s, 2) if per_token_s else None,
        "speculative_decoding": _speculative_decoding(record.drafts),
        "policy": _policy(record),
    }


def with_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the field of an answer that has metrics, and none of one that has not."""
    return {} if metrics is None else {"metrics": metrics}


def _speculative_decoding(drafts: DraftCounts) -> dict[str, Any] | None:
    """Return vLLM's fields; none where no draft was verified, for means need one."""
    num_steps = drafts.num_drafting_steps
    if not num_steps:
        return None
    histogram = drafts.acceptance_histogram
    none_so_long = [0] * (drafts.draft_length_max + 1 - len(histogram))
    return {
        "mean_acceptance_length": drafts.acceptance_length,
        "draft_acceptance_rate": drafts.num_accepted_tokens / drafts.num_draft_tokens,
        "acceptance_histogram": [*histogram, *none_so_long],
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": drafts.num_accepted_tokens,
        "num_draft_tokens": drafts.num_draft_tokens,
        "num_spec_tokens": drafts.draft_length_max,
    }


def _policy(record: RequestRecord) -> dict[str, Any]:
    drafts = record.drafts
    return {
        "replica": record.replicas[-1] if record.replicas else None,
        "modes": dict(drafts.steps),
        "draft_len_min": drafts.draft_length_min,
        "draft_len_max": drafts.draft_length_max,
        "inactive_reasons": dict(drafts.inactive_reasons),
        "plan_changes": drafts.num_plan_changes,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
