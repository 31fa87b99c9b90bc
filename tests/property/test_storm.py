"""A small storm passes; each engine that is broken on purpose does not."""

from dataclasses import replace

import pytest

from benchmarks.rigs.storm_run import MUST_HAPPEN, Storm
from dflash.batch import Batch
from dflash.errors import AccountingError
from dflash.plan import DraftPlan
from dflash.request import TokenOutput
from dflash.schedule import Schedule, Verdict
from dflash.target import TargetOutput

NUM_REQUESTS = 80


def test_a_storm_changes_no_answer_and_leaks_no_page():
    storm = Storm(seed=1)
    storm.run(NUM_REQUESTS)
    storm.run_alone(5)
    assert storm.ids_differ == 0
    assert storm.pages_written_astray == 0
    assert storm.counts["faults"] == 0
    assert storm.engine.kv_cache.num_owned == 0
    assert storm.contexts_wrong == 0
    for event in MUST_HAPPEN:
        assert storm.counts[event], f"a storm without {event} tests nothing of it"


def rows_read_a_page_of_their_neighbour(storm: Storm) -> None:
    schedule = storm.scheduler.schedule

    def crossed(plan: DraftPlan) -> Schedule:
        given = schedule(plan)
        if len(given.turns) < 2:
            return given
        first, second, *others = given.turns
        table = (second.run.page_table[0], *first.run.page_table[1:])
        wrong = replace(first, run=replace(first.run, page_table=table))
        return replace(given, turns=(wrong, second, *others))

    storm.scheduler.schedule = crossed


def pages_are_read_in_another_order(storm: Storm) -> None:
    forward = storm.model.forward

    def flipped(batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        tables = batch.page_tables.clone()
        long = (batch.page_tables >= 0).sum(dim=1) > 2
        tables[long, :2] = batch.page_tables[long, :2].flip(1)
        return forward(replace(batch, page_tables=tables), taps)

    storm.model.forward = flipped


def tokens_are_one_row_off(storm: Storm) -> None:
    forward = storm.model.forward

    def shifted(batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        return forward(replace(batch, token_ids=batch.token_ids.roll(1)), taps)

    storm.model.forward = shifted


def verdicts_are_taken_by_row_number(storm: Storm) -> None:
    commit = storm.scheduler.commit

    def rotated(verdicts: list[Verdict]) -> tuple[TokenOutput, ...]:
        # Rows that draft keep as many tokens as they chose, so only plain ones can be mixed up.
        asked = [verdict for verdict in verdicts if verdict.chosen and not verdict.turn.num_drafts]
        others = [verdict for verdict in verdicts if verdict not in asked]
        chosen = [verdict.chosen for verdict in asked[1:] + asked[:1]]
        moved = [replace(each, chosen=c) for each, c in zip(asked, chosen, strict=True)]
        return commit([*others, *moved])

    storm.scheduler.commit = rotated


def pages_are_published_before_they_are_computed(storm: Storm) -> None:
    publish = storm.engine.kv_cache.publish
    storm.engine.kv_cache.publish = lambda table, ids, count: publish(table, ids, len(ids))


def the_prefix_cache_compares_one_id_a_page(storm: Storm) -> None:
    prefixes = storm.engine.kv_cache._prefixes
    prefixes._ids_of_page = lambda token_ids, index: (token_ids[16 * index],)


def preemption_forgets_the_output(storm: Storm) -> None:
    preempt = storm.scheduler._preempt_youngest

    def forgetful() -> None:
        sequence = storm.scheduler._running[-1]
        del sequence.token_ids[len(sequence.request.prompt_token_ids) :]
        preempt()

    storm.scheduler._preempt_youngest = forgetful


def the_seed_is_shared(storm: Storm) -> None:
    enqueue = storm.engine.enqueue
    storm.engine.enqueue = lambda request, matcher: enqueue(replace(request, seed=1), matcher)


@pytest.mark.parametrize(
    "sabotage",
    [
        rows_read_a_page_of_their_neighbour,
        pages_are_read_in_another_order,
        tokens_are_one_row_off,
        verdicts_are_taken_by_row_number,
        pages_are_published_before_they_are_computed,
        the_prefix_cache_compares_one_id_a_page,
        preemption_forgets_the_output,
        the_seed_is_shared,
    ],
)
def test_a_storm_finds_what_is_broken(sabotage):
    storm = Storm(seed=1)
    sabotage(storm)
    try:
        storm.run(NUM_REQUESTS)
    except AccountingError:
        return
    assert storm.ids_differ or storm.pages_written_astray


def test_a_table_that_keeps_a_page_is_found_at_once():
    storm = Storm(seed=1)
    let_go = storm.engine.kv_cache._let_go
    storm.engine.kv_cache._let_go = lambda page: None if page == 3 else let_go(page)
    with pytest.raises(AccountingError, match="page 3 has 0 owners"):
        storm.run(NUM_REQUESTS)
