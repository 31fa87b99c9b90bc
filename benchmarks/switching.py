"""What it costs to switch drafters while requests run: the steps until all are drafted for again.

Each load runs through one chain of switches for each order of the drafters, so that every drafter
is met cold since the prompt, cold for a few steps, and warm. Costs do not depend on what is
drafted: a drafter that is not shipped has random weights.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations

from benchmarks.prompts import Chat, questions
from benchmarks.report import Options, Result, Table, progress, run_benchmark
from benchmarks.rigs.planners import reach_of
from benchmarks.rigs.served import StepFailedError
from benchmarks.speculation.lineup import (
    DrafterAbsentError,
    Lineup,
    Wanted,
    drafter_names,
    load_lineup,
)
from dflash.config import Dtype, EngineLimits
from dflash.drafters.base import DrafterKind
from dflash.engine import Engine
from dflash.errors import EngineError
from dflash.plan import PLAIN, Arm, DraftPlan, FixedPlanner
from dflash.request import GenerateRequest, SamplingParams
from dflash.stats import StepStats

_NUM_STEADY = 6
_MAX_TOKENS = 900
# For 32 requests of 1,024 tokens, and what they gain meanwhile.
_MEMORY_GIB = 1.25
_MAX_BATCHED_TOKENS = 512
_FULL = tuple((context, count) for context in (128, 1024) for count in (1, 8, 32))
_QUICK = ((128, 1), (128, 8), (128, 32), (1024, 1), (1024, 8))


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch under one load.

    Attributes:
        num_context: Tokens of each prompt.
        num_requests: Requests that run.
        start: Who drafted before.
        end: Who drafts after.
        state: What had become of the context of the one that drafts after.
        num_catch_up_steps: Steps in which a warm context was behind.
        cost_s: What those steps took beyond plain ones, and the first that drafts beyond the
            later ones, seconds.
        plain_step_s: A plain step under this load, seconds.
    """

    num_context: int
    num_requests: int
    start: str
    end: str
    state: str
    num_catch_up_steps: int
    cost_s: float
    plain_step_s: float

    @property
    def cost_steps(self) -> float:
        """Its cost in plain steps of the same load."""
        return self.cost_s / self.plain_step_s


@dataclass(frozen=True, slots=True)
class Leg:
    """A plan to switch to.

    Attributes:
        plan: From now on in force.
        state: What has become of the context of its drafter.
    """

    plan: DraftPlan
    state: str


def legs(first: Arm, second: Arm) -> Iterator[Leg]:
    """Yield the switches of one chain: from plain to one drafter, to the other, back and forth."""
    both = frozenset({first.drafter, second.drafter})
    alone, other = (DraftPlan(arm, warm=frozenset({arm.drafter})) for arm in (first, second))
    yield Leg(alone, "cold since the prompt")
    yield Leg(other, "cold since the prompt")
    yield Leg(alone, "cold for some steps")
    # The other catches up here, before it is measured warm.
    yield Leg(DraftPlan(first, warm=both), "")
    yield Leg(DraftPlan(second, warm=both), "warm")
    yield Leg(DraftPlan(first, warm=both), "warm")
    yield Leg(DraftPlan(), "")


class Ride:
    """Requests of one length that decode together while plans change."""

    def __init__(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> None:
        self._engine = engine
        for index, prompt in enumerate(prompts):
            sampling = SamplingParams(temperature=0.0, ignore_eos=True)
            max_tokens = min(_MAX_TOKENS, engine.facts.max_model_len - len(prompt))
            engine.submit(
                GenerateRequest(str(index), tuple(prompt), max_tokens, sampling, seed=index)
            )
        while self._step().num_decoding < len(prompts):
            pass
        self.plain_step_s = self._steady_s()

    def switched(self, plan: DraftPlan) -> tuple[int, float]:
        """Switch, and go on until the new plan runs steadily.

        Returns:
            Steps in which a warm context was behind, and what the switch took, seconds.
        """
        self._engine.set_planner(FixedPlanner(plan))
        steps = [self._step()]
        while _is_catching_up(steps[-1]):
            steps.append(self._step())
        *waiting, first = steps
        cost_s = sum(step.step_time_s - self.plain_step_s for step in waiting)
        return len(waiting), cost_s + first.step_time_s - self._steady_s()

    def _steady_s(self) -> float:
        return statistics.median(self._step().step_time_s for _ in range(_NUM_STEADY))

    def _step(self) -> StepStats:
        result = self._engine.step()
        fault = result.fault or result.stats.drafter_fault or result.stats.plan_fault
        if fault is not None:
            raise StepFailedError(fault)
        return result.stats


def _is_catching_up(stats: StepStats) -> bool:
    """Whether a warm context was behind as a step began."""
    return stats.num_catch_up_tokens > 0


def measure(options: Options) -> Result:
    """Switch between every two drafters, warm and cold, under every load."""
    arguments = options.arguments
    wanted = Wanted(
        dtype=arguments.dtype,
        num_threads=arguments.threads,
        folders=tuple(arguments.drafter),
        names=arguments.drafters,
        may_make_up=True,
        memory_gib=_MEMORY_GIB,
    )
    if len(set(wanted.names)) < 2:
        sys.exit("--drafters names one drafter; name two or more to switch between")
    try:
        lineup = load_lineup(wanted)
    except (EngineError, DrafterAbsentError) as error:
        sys.exit(str(error))
    loads = _QUICK if options.quick else _FULL
    reach = reach_of(lineup.drafters)
    arms = [Arm(n, min(most, 2) if n == DrafterKind.MTP else most) for n, most in reach.items()]
    chains = list(permutations(arms, 2))
    switches: list[Switch] = []
    with progress(len(loads) * len(chains), "chains") as bar:
        for load in loads:
            for first, second in chains:
                switches += _chain(lineup, load, list(legs(first, second)))
                bar.update()
    worst = max(switches, key=lambda switch: switch.cost_steps)
    return Result(
        figures={
            "worst_switch_steps": worst.cost_steps,
            "worst_warm_switch_steps": max(s.cost_steps for s in switches if s.state == "warm"),
        },
        conditions={"dtype": arguments.dtype, "exactness": lineup.target.exactness.form},
        detail={"switches": [asdict(switch) for switch in switches]},
        tables=(_table(switches),),
        notes=tuple(
            f"{name} has random weights, which cost what trained ones do" for name in lineup.made_up
        ),
    )


def _chain(lineup: Lineup, load: tuple[int, int], chain: Sequence[Leg]) -> Iterator[Switch]:
    num_context, num_requests = load
    limits = EngineLimits(max_num_seqs=num_requests, max_num_batched_tokens=_MAX_BATCHED_TOKENS)
    runner = lineup.target.runner
    engine = Engine(runner, limits, drafters=lineup.drafters, prefix_caching=False)
    ride = Ride(engine, _prompts(lineup, num_context, num_requests))
    start = PLAIN.drafter
    for leg in chain:
        num_steps, cost_s = ride.switched(leg.plan)
        end = leg.plan.arm.drafter
        if end != start:
            state = leg.state or "nothing to catch up"
            yield Switch(
                num_context, num_requests, start, end, state, num_steps, cost_s, ride.plain_step_s
            )
        start = end


def _prompts(lineup: Lineup, num_tokens: int, count: int) -> list[list[int]]:
    """Return prompts of one length, no two alike."""
    chat = Chat(lineup.target.model_folder)
    texts = questions(count, visit=0)
    longest = [chat.token_ids([" ".join([text] * (num_tokens // 8))]) for text in texts]
    return [ids[:num_tokens] for ids in longest]


def _table(switches: Sequence[Switch]) -> Table:
    rows: dict[tuple[str, ...], list[Switch]] = {}
    for switch in switches:
        key = (
            f"{switch.start} to {switch.end}",
            switch.state,
            f"{switch.num_context:,}",
            str(switch.num_requests),
        )
        rows.setdefault(key, []).append(switch)
    return Table(
        "Cost of a switch: steps that waited, milliseconds, and plain steps of the same load",
        ("switch", "context", "tokens", "requests", "waited", "ms", "plain steps"),
        tuple(
            (
                *key,
                f"{statistics.median(each.num_catch_up_steps for each in found):g}",
                f"{1000 * statistics.median(each.cost_s for each in found):.1f}",
                f"{statistics.median(each.cost_steps for each in found):.2f}",
            )
            for key, found in rows.items()
        ),
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drafter", nargs="+", default=[], metavar="FOLDER", help="the shipped ones by default"
    )
    parser.add_argument(
        "--drafters",
        type=drafter_names,
        default=(DrafterKind.DFLASH2, DrafterKind.MTP),
        metavar="LIST",
        help="comma-separated, two or more (default: dflash2,mtp)",
    )
    parser.add_argument("--dtype", default="bfloat16", choices=[dtype.value for dtype in Dtype])
    parser.add_argument("--threads", type=int, default=None, help="all CPUs by default")


if __name__ == "__main__":
    run_benchmark(
        "switching",
        "What a switch of drafters costs, in milliseconds and steps, warm and cold.",
        measure,
        _add_arguments,
    )
