"""Ways to serve the same requests with drafts: by a script that knows the answers, or for real."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.rigs.planners import (
    RandomModes,
    RandomPlanner,
    Reach,
    TogglingPlanner,
    full_width,
    reach_of,
)
from benchmarks.rigs.script_drafter import (
    SCRIPTED,
    Script,
    ScriptDrafter,
    all_right,
    all_wrong,
    random_wrong,
    right_of,
    right_up_to,
)
from benchmarks.rigs.served import LIMITS, Manner, Served, served
from benchmarks.rigs.transcript import Transcript
from benchmarks.rigs.unquiet_policy import UnquietPolicy
from dflash.drafters.base import Drafter
from dflash.plan import FixedPlanner, Planner
from dflash.request import GenerateRequest
from dflash.target import Target

_BATCH = 5
_WRONG = 0.3


@dataclass(frozen=True, slots=True)
class DraftArm:
    """One way to draft.

    Attributes:
        name: What tables call it.
        events: What must happen in it, or it has shown nothing; keys of `Served.events`.
        drafters: Returns the drafters.
        planner: Returns the planner, fresh, for drafters that reach so far.
        visits: As in `Manner`.
    """

    name: str
    events: tuple[str, ...]
    drafters: Callable[[], Sequence[Drafter]]
    planner: Callable[[Reach], Planner]
    visits: int = 0

    def serve(self, target: Target, requests: Sequence[GenerateRequest]) -> Served:
        """Serve requests, a few at once, their rows shuffled."""
        drafters = self.drafters()
        manner = Manner(
            replace(LIMITS, max_num_seqs=_BATCH),
            shuffle_seed=1,
            visits=self.visits,
            drafters=drafters,
            planner=self.planner(reach_of(drafters)),
        )
        return served(target, requests, manner)

    def what_is_missing(self, outcome: Served) -> list[str]:
        """Return why an outcome shows less than the arm is for; a drafter may not fail in it."""
        missing = [f"{self.name}: {event}" for event in self.events if not outcome.events[event]]
        if count := outcome.events["drafter_faults"]:
            missing.append(f"{self.name}: {count} drafter faults")
        return missing


def scripted(
    target: Target,
    requests: Sequence[GenerateRequest],
    reference: Transcript,
    script: Script,
    name: str = SCRIPTED.name,
) -> ScriptDrafter:
    """Return a drafter that knows what each request will be given.

    Args:
        target: What it drafts for.
        requests: All that it will be asked about; no two share seed and choice.
        reference: What they were given alone.
        script: What it makes of that.
        name: What plans call it.
    """
    answers = {
        (request.seed, request.choice): (
            *request.prompt_token_ids,
            *reference.emitted[request.request_id],
        )
        for request in requests
    }
    return ScriptDrafter(
        target.facts, right_of(answers), script, facts=replace(SCRIPTED, name=name)
    )


def scripted_arms(
    target: Target, requests: Sequence[GenerateRequest], reference: Transcript
) -> list[DraftArm]:
    """Return the arms whose drafts are wrong, right or random on purpose."""
    vocab_size = target.facts.vocab_size

    def drafters(**scripts: Script) -> Callable[[], Sequence[Drafter]]:
        return lambda: [
            scripted(target, requests, reference, script, name) for name, script in scripts.items()
        ]

    half_wrong = random_wrong(_WRONG, vocab_size, seed=9)
    wrong, mixed = drafters(script=all_wrong(vocab_size)), drafters(script=half_wrong)
    both = drafters(one=half_wrong, other=right_up_to(2, vocab_size))
    of_both = ("accepted_by_one", "accepted_by_other")
    return [
        DraftArm("all-wrong drafts", ("rejected",), wrong, full_width_of_first),
        DraftArm(
            "all-right drafts", ("accepted",), drafters(script=all_right), full_width_of_first
        ),
        DraftArm("random drafts", ("accepted", "rejected"), mixed, full_width_of_first),
        DraftArm("random draft lengths", ("accepted", "graded_free"), mixed, random_widths),
        DraftArm("mode toggled every step", ("accepted", "catch_up"), mixed, toggled),
        DraftArm("drafts, warm cache", ("accepted", "cached_tokens"), mixed, toggled, visits=2),
        DraftArm("two scripts, mixed in each batch", of_both, both, random_widths),
        DraftArm("two scripts, switched", (*of_both, "catch_up"), both, random_modes, visits=2),
        DraftArm("two scripts, live policy", (*of_both, "catch_up"), both, live_policy, visits=2),
    ]


def full_width_of_first(reach: Reach) -> Planner:
    """Plan the whole block of the first drafter in every step."""
    return FixedPlanner(full_width(next(iter(reach)), reach))


def random_widths(reach: Reach) -> Planner:
    """Plan another drafter and length for each row and step."""
    return RandomPlanner(reach, seed=4)


def toggled(reach: Reach) -> Planner:
    """Plan another mode in each step."""
    return TogglingPlanner(reach)


def live_policy(reach: Reach) -> Planner:
    """Plan as the policy does while nothing around it stays as it is."""
    return UnquietPolicy(reach, seed=9)


def random_modes(reach: Reach) -> Planner:
    """Plan other drafters in each step, warm and cold at random."""
    return RandomModes(reach, seed=10)
