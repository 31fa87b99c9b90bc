"""One step in counts."""

from collections import Counter
from collections.abc import Mapping

from dflash.request import FinishReason, TokenOutput
from dflash.schedule import Computed, Effort, Verdict
from dflash.stats import DrafterStats, Grades, StepStats


def count_step(
    computed: Computed,
    outputs: tuple[TokenOutput, ...],
    grades: Mapping[str, Grades],
    step_time_s: float,
) -> StepStats:
    """Return the counts of a step that has been committed.

    Args:
        computed: What was computed.
        outputs: The messages that came of it.
        grades: Its draft tokens, graded, of every drafter there is.
        step_time_s: Wall time of the step, seconds.
    """
    schedule = computed.schedule
    drafting = [verdict for verdict in computed.verdicts if verdict.turn.num_drafts]
    plain = Counter(turn.why_plain for turn in schedule.turns if turn.why_plain is not None)
    num_decoding = len(drafting) + plain.total()
    num_drafts = sum(verdict.turn.num_drafts for verdict in drafting)
    # One that decodes may have a second turn, in which a context is caught up.
    num_requests = len({turn.sequence for turn in schedule.turns})
    num_catch_up = sum(turn.num_catch_up for turn in schedule.turns)
    num_tokens = sum(len(turn.run.token_ids) for turn in schedule.turns)
    ends = [output.finish_reason for output in outputs if output.finish_reason is not None]
    num_failed = ends.count(FinishReason.ERROR)
    return StepStats(
        num_decoding=num_decoding,
        by_drafter={
            name: _drafter_stats(
                [verdict for verdict in drafting if verdict.turn.drafter == name],
                graded,
                computed.efforts.get(name, Effort()),
            )
            for name, graded in grades.items()
        },
        num_catch_up_tokens=num_catch_up,
        plain_rows=dict(plain),
        plan_fault=computed.plan_fault,
        num_prefilling=num_requests - num_decoding,
        num_prefill_tokens=num_tokens - num_decoding - num_drafts - num_catch_up,
        num_emitted_tokens=sum(len(output.token_ids) for output in outputs),
        num_finished=len(ends) - num_failed,
        num_failed=num_failed,
        num_preempted=schedule.num_preempted,
        num_cached_tokens=schedule.num_cached_tokens,
        step_time_s=step_time_s,
    )


def _drafter_stats(verdicts: list[Verdict], grades: Grades, effort: Effort) -> DrafterStats:
    return DrafterStats(
        num_drafting=len(verdicts),
        num_draft_tokens=sum(verdict.turn.num_drafts for verdict in verdicts),
        num_accepted_tokens=sum(verdict.num_accepted for verdict in verdicts),
        grades=grades,
        time_s=effort.time_s,
        num_faults=int(effort.fault is not None),
        last_fault=effort.fault,
    )
