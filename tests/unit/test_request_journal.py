"""What the record of a request says of the messages that its engine sent."""

from itertools import count

import pytest

from deployments.openai import errors
from deployments.openai.metrics_block import metrics_body
from deployments.request_journal import RequestJournal
from deployments.request_record import PlanChange
from deployments.wire import Step
from dflash.request import Decoded, GenerateRequest

REQUEST = GenerateRequest("r", tuple(range(10)), 40)


class Clock:
    """A second goes by whenever somebody looks."""

    def __init__(self) -> None:
        self._seconds = count()

    def __call__(self) -> float:
        return float(next(self._seconds))


def journal(num_choices: int = 1) -> RequestJournal:
    new = RequestJournal(Clock(), lambda: 1000.0)
    new.begin([REQUEST] * num_choices, num_choices, "fake", stream=True)
    return new


def drafted(num_drafted: int, num_accepted: int, drafter: str = "dflash2") -> Decoded:
    return Decoded(drafter, num_drafted, num_accepted)


def test_times_are_told_from_the_arrival_and_the_gaps_are_between_chunks():
    told = journal()
    told.note(Step(replica="r1"))
    told.note(Step((5,), queue_time_s=0.25, num_cached_tokens=8))
    told.note(Step())
    told.note(Step((6, 7)))
    told.note(Step((8,), finish_reason="length"))
    told.finish("length", 4)

    record = told.record("/v1/completions", 200)

    assert (record.arrived_at_s, record.duration_s) == (1000.0, 6.0)
    assert (record.queue_time_s, record.queue_end_s) == (0.25, 1.25)
    assert (record.first_token_s, record.last_token_s) == (2.0, 5.0)
    assert (record.num_chunks, record.gaps.count, record.gaps.total) == (3, 2, 3.0)
    assert record.time_per_output_token_s == 1.0
    assert (record.num_cached_tokens, record.num_completion_tokens) == (8, 4)
    assert record.finish_reasons == ("length",)
    assert record.replicas == ("r1",)


def test_steps_are_counted_by_drafter_by_drafts_kept_and_by_reason():
    told = journal()
    told.note(Step((1,)))
    told.note(Step((2, 3, 4), decoded=(drafted(4, 2),)))
    told.note(Step((5, 6), decoded=(drafted(7, 0), drafted(1, 0, "mtp"))))
    told.note(Step((7,), decoded=(Decoded("plain", why_plain="plan"),)))
    told.note(Step((8,), decoded=(Decoded("dflash2", why_plain="budget"),)))

    drafts = told.record().drafts

    assert drafts.steps == {"dflash2": 2, "mtp": 1, "plain": 2}
    assert drafts.acceptance_histogram == (2, 0, 1)
    assert drafts.accepted_per_position == (1, 1)
    assert (drafts.num_drafting_steps, drafts.num_draft_tokens) == (3, 12)
    assert drafts.num_accepted_tokens == 2
    assert drafts.acceptance_length == pytest.approx(1 + 2 / 3)
    assert (drafts.draft_length_min, drafts.draft_length_max) == (1, 7)
    assert drafts.inactive_reasons == {"plan": 1, "budget": 1}


def test_another_drafter_is_a_change_of_plan_and_a_full_budget_is_none():
    told = journal()
    told.note(Step((1,), decoded=(drafted(4, 2),)))
    told.note(Step((2,), decoded=(Decoded("plain", why_plain="pages"),)))
    told.note(Step((3,), decoded=(drafted(2, 2),)))
    told.note(Step((4,), decoded=(Decoded("plain", why_plain="plan"),)))
    told.note(Step((5,), decoded=(drafted(1, 1, "mtp"),)))

    drafts = told.record().drafts

    assert drafts.num_plan_changes == 2
    assert drafts.plan_changes == (
        PlanChange(4.0, "dflash2", "plain"),
        PlanChange(5.0, "plain", "mtp"),
    )


def test_choices_have_gaps_and_plans_of_their_own():
    told = journal(num_choices=2)
    for choice, drafter in enumerate(("dflash2", "mtp")):
        told.note(Step((1,), replica="r1"), choice)
        told.note(Step((2,), decoded=(drafted(3, 0, drafter),)), choice)
        told.finish("stop", 2, choice)

    record = told.record()

    assert (record.gaps.count, record.gaps.total) == (2, 2.0)
    assert record.drafts.num_plan_changes == 0
    assert record.finish_reasons == ("stop", "stop")
    assert record.time_per_output_token_s == pytest.approx(3.0)


def test_one_whose_client_left_is_aborted_and_one_that_failed_is_not():
    left, failed, refused = journal(), journal(), journal()
    left.note(Step(replica="r1"))
    failed.note(Step(replica="r1"))
    failed.fail(errors.request_aborted())
    refused.fail(errors.queue_full("full", 1.0))

    assert left.record().finish_reasons == ("abort",)
    assert left.record().error_code is None
    assert (failed.record().finish_reasons, failed.record().error_code) == ((), "request_aborted")
    assert (refused.record().finish_reasons, refused.record().error_code) == ((), "queue_full")


def test_a_resumed_request_waited_once_and_found_no_more_than_its_prompt_cached():
    told = journal()
    told.note(Step(replica="r1"))
    told.note(Step((1,), queue_time_s=0.5))
    told.note(Step(replica="r2"))
    told.note(Step((2,), queue_time_s=7.0, num_cached_tokens=11))

    record = told.record()

    assert record.replicas == ("r1", "r2")
    assert (record.queue_time_s, record.queue_end_s) == (0.5, 1.5)
    assert record.num_cached_tokens == 10


def test_what_a_stop_string_cut_off_is_no_part_of_the_answer():
    told = journal()
    told.note(Step((1, 2, 3, 4)))
    told.finish("stop", 2)

    assert told.record().num_completion_tokens == 2


def test_an_answers_times_are_those_of_its_record():
    told = journal()
    told.note(Step((5,), replica="r1", queue_time_s=0.25))
    told.note(Step((6, 7)))
    told.note(Step((8,), finish_reason="length"))

    body = metrics_body(told.record())

    assert (body["time_to_first_token_ms"], body["queue_time_ms"]) == (1000.0, 250.0)
    assert (body["mean_itl_ms"], body["tokens_per_second"]) == (1000.0, 1.5)


def test_what_never_began_has_no_times():
    body = metrics_body(journal().record())

    assert {name: body[name] for name in body if name != "policy"} == {
        "time_to_first_token_ms": None,
        "queue_time_ms": None,
        "mean_itl_ms": None,
        "tokens_per_second": None,
        "speculative_decoding": None,
    }
