"""A line of the log for each request, in fields and without a word of its text."""

import logging
from typing import Any

from deployments.request_record import RequestRecord
from deployments.telemetry.span_form import OPERATIONS

logger = logging.getLogger(__name__)


def log_request(record: RequestRecord) -> None:
    """Write the line of a request that is over; Serve writes the other routes' own."""
    if record.route in OPERATIONS:
        logger.info("request over", extra={"request": request_fields(record)})


def request_fields(record: RequestRecord) -> dict[str, Any]:
    """Return what the line of a request says, without what does not apply."""
    asked, drafts = record.asked, record.drafts
    fields = {
        "request_id": asked and asked.request_id,
        "trace_id": record.trace_id or None,
        "route": record.route,
        "status": record.status,
        "code": record.error_code,
        "finish_reasons": list(record.finish_reasons) or None,
        "stream": asked and asked.is_stream,
        "prompt_tokens": asked and asked.num_prompt_tokens,
        "cached_tokens": record.num_cached_tokens,
        "completion_tokens": record.num_completion_tokens,
        "queue_ms": _ms(record.queue_time_s),
        "first_token_ms": _ms(record.first_token_s),
        "duration_ms": _ms(record.duration_s),
        "replicas": list(record.replicas) or None,
        "steps": dict(drafts.steps) or None,
        "draft_tokens": drafts.num_draft_tokens,
        "accepted_tokens": drafts.num_accepted_tokens,
        "inactive": dict(drafts.inactive_reasons) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
