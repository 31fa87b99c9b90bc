"""How many requests a deployment holds at most: what Serve bounds only nearly."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ray import serve
from ray.serve.exceptions import RayServeException


@dataclass(frozen=True, slots=True)
class Room:
    """What Serve's settings allow one replica, and the queue before all of them.

    Attributes:
        max_ongoing_requests: Most requests that run on a replica.
        max_queued_requests: Most requests of one ingress that wait for a replica; -1 for any.
    """

    max_ongoing_requests: int
    max_queued_requests: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one ingress may hold at once, over all replicas; None where nothing bounds it.

    Attributes:
        places: Choices that wait or run.
        waiting_tokens: Prompt tokens of those that no engine has taken.
    """

    places: int | None = None
    waiting_tokens: int | None = None


def room_of_this_replica() -> Room | None:
    """Return the room of the replica this process is; None outside Serve.

    Both limits can change while a replica runs, so it is asked each time.
    """
    try:
        context = serve.get_replica_context()
    except RayServeException:
        return None
    config = context._deployment_config  # pyright: ignore[reportPrivateUsage]
    return Room(config.max_ongoing_requests, config.max_queued_requests)


def name_of_this_replica() -> str:
    """Return the name that Serve gave this process; its number outside Serve."""
    try:
        return serve.get_replica_context().replica_tag
    except RayServeException:
        return str(os.getpid())


def most_live(rooms: Iterable[Room | None]) -> int | None:
    """Return how many requests one ingress may have at once; None where nothing bounds them.

    Serve counts a request that it is just placing neither as queued nor as running, and puts it
    back into a queue that is full by then. The sum of both limits has no such gap.

    Args:
        rooms: Of every replica that answers; None where it does not know.
    """
    known = [room for room in rooms if room is not None and room.max_queued_requests >= 0]
    if not known:
        return None
    return sum(room.max_ongoing_requests for room in known) + known[0].max_queued_requests
