"""`POST /policy/pins`: from a body to a pin that every replica it names can obey."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.openai import errors
from deployments.openai.errors import RefusedError
from deployments.operators.board import Heard
from deployments.operators.orders import StandingPin
from deployments.operators.query import one_of
from deployments.strict import problems_in, value_from
from policy.arms import PLAIN
from policy.pins import ALL_REPLICAS

MOST_MINUTES = 240.0
_MOST_CHARACTERS = 300
_MOST_NAMED = 64


@dataclass(frozen=True, slots=True)
class PinRequest:
    """What the body of `POST /policy/pins` can hold.

    Attributes:
        plan: ``plain``, or a drafter and a draft length, such as ``mtp:2``.
        minutes: How long it holds, over 0 and up to 240.
        why: Why, for whoever finds it.
        replicas: Names of replicas, or ``*`` alone for all.
        author: Who is answerable for it; where keys are set it is the key's name instead.
        release_drafter: Give the drafters' weights back meanwhile; with ``plain`` alone.
    """

    plan: str
    minutes: float
    why: str
    replicas: tuple[str, ...] = (ALL_REPLICAS,)
    author: str = ""
    release_drafter: bool = False


def pin_from(
    fields: dict[str, object], key_name: str | None, fleet: Sequence[Heard], now_s: float
) -> StandingPin:
    """Return the pin that a body asks for.

    Args:
        fields: The body.
        key_name: Name of the key that came with it; None where no keys are set.
        fleet: The replicas that are there.
        now_s: The time, seconds since the epoch.

    Raises:
        RefusedError: Something in it cannot work; the message has the value and what would.
    """
    try:
        problems = problems_in(PinRequest, fields, ())
    except RecursionError:
        raise RefusedError(errors.invalid_json("it is nested too deeply")) from None
    if problems:
        path = problems[0].path
        raise RefusedError(
            errors.invalid_parameter(str(path[0]) if path else "body", str(problems[0]))
        )
    asked = value_from(PinRequest, fields)
    author = key_name or asked.author.strip()
    _check_words(asked, author)
    _check_time(asked.minutes)
    _check_places(asked, fleet)
    return StandingPin(
        pin_id=secrets.token_hex(4),
        arm=asked.plan,
        replicas=tuple(dict.fromkeys(asked.replicas)),
        author=author,
        why=asked.why.strip(),
        made_at_s=now_s,
        expires_at_s=now_s + 60.0 * asked.minutes,
        release_drafter=asked.release_drafter,
    )


def _check_words(asked: PinRequest, author: str) -> None:
    wanted = {
        "author": (author, "say who is answerable for it"),
        "why": (asked.why.strip(), "say why, for whoever finds the pin"),
    }
    for param, (text, hint) in wanted.items():
        if not text or len(text) > _MOST_CHARACTERS or not text.isprintable():
            raise _refused(
                param,
                f"{param} has {len(text)} characters; {hint}, in 1 to {_MOST_CHARACTERS} "
                "printable ones",
            )


def _check_time(minutes: float) -> None:
    if not 0.0 < minutes <= MOST_MINUTES:
        raise _refused(
            "minutes", f"minutes is {minutes:g}; give over 0 and at most {MOST_MINUTES:g}"
        )


def _check_places(asked: PinRequest, fleet: Sequence[Heard]) -> None:
    """Refuse what a replica that is named could not obey."""
    if not fleet:
        raise RefusedError(errors.server_loading("starting", 0))
    if not asked.replicas or len(asked.replicas) > _MOST_NAMED:
        raise _refused("replicas", f"replicas has {len(asked.replicas)} names; give '*' for all")
    names = {each.status.replica for each in fleet}
    for name in asked.replicas:
        one_of("replicas", name, {*names, ALL_REPLICAS})
    for each in fleet:
        if ALL_REPLICAS in asked.replicas or each.status.replica in asked.replicas:
            _check_place(asked, each)


def _check_place(asked: PinRequest, heard: Heard) -> None:
    name, report = heard.status.replica, heard.status.report
    if report is None or report.desk is None:
        raise _refused(
            "replicas",
            f"replica {name} runs a fixed plan, so no pin can hold there; set "
            "engine.speculation.draft_length to auto",
        )
    one_of("plan", asked.plan, report.desk.arms)
    if asked.release_drafter and asked.plan != PLAIN:
        raise _refused(
            "release_drafter",
            f"release_drafter goes with plan {PLAIN!r} alone, and this one is {asked.plan!r}, "
            f"which drafts; leave it out, or pin {PLAIN!r}",
        )


def _refused(param: str, message: str) -> RefusedError:
    return RefusedError(errors.invalid_parameter(param, message))
