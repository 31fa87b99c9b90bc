"""Ways to serve the same requests with drafts: by a script that knows the answers, or for real."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.rigs.planners import RandomPlanner, TogglingPlanner
from benchmarks.rigs.script_drafter import (
    Script,
    ScriptDrafter,
    all_right,
    all_wrong,
    random_wrong,
    right_of,
)
from benchmarks.rigs.served import LIMITS, Manner, Served, served
from benchmarks.rigs.transcript import Transcript
from dflash.drafters.base import Drafter
from dflash.plan import ContextMode, DraftPlan, FixedPlanner, Planner
from dflash.request import GenerateRequest
from dflash.target import Target

MAX_DRAFT_LENGTH = 7
_FULL_WIDTH = DraftPlan(MAX_DRAFT_LENGTH, context=ContextMode.WARM)
_BATCH = 5
_WRONG = 0.3


@dataclass(frozen=True, slots=True)
class DraftArm:
    """One way to draft.

    Attributes:
        name: What tables call it.
        events: What must happen in it, or it has shown nothing; keys of `Served.events`.
        drafter: Returns the drafter.
        planner: Returns the planner, fresh.
        visits: As in `Manner`.
    """

    name: str
    events: tuple[str, ...]
    drafter: Callable[[], Drafter]
    planner: Callable[[], Planner]
    visits: int = 0

    def serve(self, target: Target, requests: Sequence[GenerateRequest]) -> Served:
        """Serve requests, a few at once, their rows shuffled."""
        manner = Manner(
            replace(LIMITS, max_num_seqs=_BATCH),
            shuffle_seed=1,
            visits=self.visits,
            drafter=self.drafter(),
            planner=self.planner(),
        )
        return served(target, requests, manner)

    def what_is_missing(self, outcome: Served) -> list[str]:
        """Return why an outcome shows less than the arm is for; a drafter may not fail in it."""
        missing = [f"{self.name}: {event}" for event in self.events if not outcome.events[event]]
        if count := outcome.events["drafter_faults"]:
            missing.append(f"{self.name}: {count} drafter faults")
        return missing


def scripted(
    target: Target, requests: Sequence[GenerateRequest], reference: Transcript, script: Script
) -> ScriptDrafter:
    """Return a drafter that knows what each request will be given.

    Args:
        target: What it drafts for.
        requests: All that it will be asked about; no two share seed and choice.
        reference: What they were given alone.
        script: What it makes of that.
    """
    answers = {
        (request.seed, request.choice): (
            *request.prompt_token_ids,
            *reference.emitted[request.request_id],
        )
        for request in requests
    }
    return ScriptDrafter(target.facts, right_of(answers), script, max_draft_length=MAX_DRAFT_LENGTH)


def scripted_arms(
    target: Target, requests: Sequence[GenerateRequest], reference: Transcript
) -> list[DraftArm]:
    """Return the arms whose drafts are wrong, right or random on purpose."""
    vocab_size = target.facts.vocab_size

    def drafter(script: Script) -> Callable[[], Drafter]:
        return lambda: scripted(target, requests, reference, script)

    mixed = drafter(random_wrong(_WRONG, vocab_size, seed=9))
    return [
        DraftArm("all-wrong drafts", ("rejected",), drafter(all_wrong(vocab_size)), full_width),
        DraftArm("all-right drafts", ("accepted",), drafter(all_right), full_width),
        DraftArm("random drafts", ("accepted", "rejected"), mixed, full_width),
        DraftArm("random draft lengths", ("accepted", "graded_free"), mixed, random_widths),
        DraftArm("mode toggled every step", ("accepted", "catch_up"), mixed, toggled),
        DraftArm("drafts, warm cache", ("accepted", "cached_tokens"), mixed, toggled, visits=2),
    ]


def full_width() -> Planner:
    """Plan the whole block in every step."""
    return FixedPlanner(_FULL_WIDTH)


def random_widths() -> Planner:
    """Plan another length for each row and step."""
    return RandomPlanner(MAX_DRAFT_LENGTH, seed=4)


def toggled() -> Planner:
    """Plan another mode in each step."""
    return TogglingPlanner(MAX_DRAFT_LENGTH)
