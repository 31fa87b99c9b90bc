"""What an operator orders of the policy by a `user_config`: bounds, and pins."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deployments.config import UserConfig, user_config_from
from deployments.pin_order import PinOrder
from deployments.strict import Problem, joined
from dflash.errors import ConfigError
from policy.arms import Ladder
from policy.errors import PolicyError
from policy.limits import Limits
from policy.pins import ALL_REPLICAS, Pin


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on two clocks.

    Attributes:
        at: With a time zone, as people write it.
        now_s: On the clock of the signals, seconds.
    """

    at: datetime
    now_s: float


@dataclass(frozen=True, slots=True)
class Orders:
    """What the policy of a replica has to obey.

    Attributes:
        limits: Bounds.
        pins: Those that are not over, in their order.
        lapsed: A sentence for each one that is left out because it is over.
    """

    limits: Limits
    pins: tuple[Pin, ...] = ()
    lapsed: tuple[str, ...] = ()


def orders_at_start(user_config: Any, ladder: Ladder, moment: Moment) -> Orders:
    """Return the orders of a replica that starts.

    The same `user_config` starts replicas for as long as it is deployed. A pin that was good once
    and is over must not take the limits beside it away, and one for a replica that has gone, or
    for one that this replica does not know, does nothing here.

    Raises:
        ConfigError: Something in it can never have worked; the message has all problems.
    """
    config = user_config_from(user_config)
    _refuse(_limit_problems(config, ladder) + _arm_problems(config, ladder))
    over = [order for order in config.pins if order.expires_at <= moment.at]
    return Orders(
        config.policy,
        tuple(_pin(order, moment) for order in config.pins if order not in over),
        tuple(_lapse(order) for order in over),
    )


def orders_at_reload(
    user_config: Any, ladder: Ladder, replicas: Collection[str], moment: Moment
) -> Orders:
    """Return the orders of a `user_config` that somebody has deployed just now.

    Args:
        user_config: The whole of it.
        ladder: The drafters that are there.
        replicas: Names of the replicas that are there.
        moment: Now.

    Raises:
        ConfigError: Something in it cannot work; the message has all problems.
    """
    config = user_config_from(user_config)
    _refuse(
        _limit_problems(config, ladder)
        + _arm_problems(config, ladder)
        + [*_place_problems(config, replicas)]
        + [*_time_problems(config, moment)]
    )
    return Orders(config.policy, tuple(_pin(order, moment) for order in config.pins))


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(joined(problems))


def _limit_problems(config: UserConfig, ladder: Ladder) -> list[Problem]:
    try:
        config.policy.check_ladder(ladder)
    except PolicyError as error:
        at = ("user_config", "policy", "max_concurrency")
        return [Problem(at, f"{error}.", dict(config.policy.max_concurrency))]
    return []


def _arm_problems(config: UserConfig, ladder: Ladder) -> list[Problem]:
    problems = []
    for index, order in enumerate(config.pins):
        try:
            # Of drafters alone: who has to obey it and for how long is another question.
            Pin(order.pin(1.0).arm, (ALL_REPLICAS,), "any", "any", 1.0).check(ladder, (), 0.0)
        except PolicyError as error:
            problems.append(Problem(_path(index, "arm"), f"{error}.", order.arm))
    return problems


def _place_problems(config: UserConfig, replicas: Collection[str]) -> Iterator[Problem]:
    for index, order in enumerate(config.pins):
        for replica in order.replicas:
            if replica != ALL_REPLICAS and replica not in replicas:
                known = ", ".join(sorted(replicas))
                message = f"No such replica. There are {known}, or {ALL_REPLICAS!r} for all."
                yield Problem(_path(index, "replicas"), message, replica)


def _time_problems(config: UserConfig, moment: Moment) -> Iterator[Problem]:
    for index, order in enumerate(config.pins):
        if order.expires_at <= moment.at:
            now = moment.at.isoformat(timespec="seconds")
            message = f"It is over already: it is {now}. Give a later time, or take the pin out."
            yield Problem(_path(index, "expires"), message, order.expires)


def _path(index: int, key: str) -> tuple[str | int, ...]:
    return "user_config", "pins", index, key


def _pin(order: PinOrder, moment: Moment) -> Pin:
    return order.pin(moment.now_s + (order.expires_at - moment.at).total_seconds())


def _lapse(order: PinOrder) -> str:
    return f"the pin of {order.arm} by {order.author} ended at {order.expires} and is left out"
