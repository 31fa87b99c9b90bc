"""`GET /v1/models`: the one model served, and what is promised of its numbers, how it drafts."""

from dataclasses import asdict
from typing import Any

from deployments.wire import ModelCard


def model_body(name: str, created: int, card: ModelCard) -> dict[str, Any]:
    """Return one model's entry."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "dflash-serve",
        "max_model_len": card.max_model_len,
        "exactness": {
            "mode": card.exactness_mode,
            "form": card.exactness_form,
            "detail": card.exactness_detail,
        },
        "speculation": {
            "drafter": card.speculation.drafter,
            "draft_length": card.speculation.draft_length,
            "detail": card.speculation.detail,
            "drafters": [asdict(drafter) for drafter in card.speculation.drafters],
        },
    }


def model_list_body(model: dict[str, Any]) -> dict[str, Any]:
    """Return the list of models."""
    return {"object": "list", "data": [model]}
