"""Why a plan is in force, or what kept another one from it: a closed list."""

from enum import StrEnum


class Reason(StrEnum):
    """One word for the log, the response, the metric, the trace and the page.

    ``starting``: nothing was measured yet. ``idle``: no request decodes. ``steady``: nothing is
    better by enough. ``faster``: another drafter is. ``wider``, ``narrower``: another draft length
    of the same drafter is. ``slower_than_plain``: what ran lost time. ``load_spike``: so many
    requests arrived at once that the dwell was not waited for.

    ``dwell``: the last change is too recent. ``confirming``: it has to win twice.
    ``switch_budget``: too many changes this minute. ``switch_cost``: catching up would cost more
    than it brings.

    ``concurrency_limit``: more requests than the operator allows this drafter.
    ``memory_amber``, ``memory_red``: memory is short. ``drafter_unhealthy``: it fails, or even its
    first token is nearly always wrong. ``drafter_unavailable``: it is not loaded. ``opted_out``:
    no request may draft with it, by its own wish or by its length.

    ``probe``, ``probe_ended``: a short trial of what is idle. ``pinned``: an operator said so.
    """

    STARTING = "starting"
    IDLE = "idle"
    STEADY = "steady"
    FASTER = "faster"
    WIDER = "wider"
    NARROWER = "narrower"
    SLOWER_THAN_PLAIN = "slower_than_plain"
    LOAD_SPIKE = "load_spike"
    DWELL = "dwell"
    CONFIRMING = "confirming"
    SWITCH_BUDGET = "switch_budget"
    SWITCH_COST = "switch_cost"
    CONCURRENCY_LIMIT = "concurrency_limit"
    MEMORY_AMBER = "memory_amber"
    MEMORY_RED = "memory_red"
    DRAFTER_UNHEALTHY = "drafter_unhealthy"
    DRAFTER_UNAVAILABLE = "drafter_unavailable"
    OPTED_OUT = "opted_out"
    PROBE = "probe"
    PROBE_ENDED = "probe_ended"
    PINNED = "pinned"
