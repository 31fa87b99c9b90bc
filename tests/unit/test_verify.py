"""Which draft tokens stay: only the ones the target chooses itself."""

import pytest
import torch

from benchmarks.rigs.drive import Drive
from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.script_drafter import Script, all_wrong, random_wrong, right_up_to
from dflash.batch import Batch, Run
from dflash.request import FinishReason, GenerateRequest, SamplingParams
from dflash.sampling import ChoiceRow, choose
from dflash.schedule import Turn, Verdict
from dflash.sequence import Sequence
from dflash.target import TargetOutput
from dflash.verify import verify
from tests.rigs.drafted import VOCAB, always, assert_right, places, request, speculation, total

SIZE = 16
ANCHOR = 9


def sequence(**sampling) -> Sequence:
    params = SamplingParams(**{"temperature": 0.0, **sampling})
    return Sequence(GenerateRequest("r", (1, 2), 30, params, seed=3), eos_token_ids=(0,))


def turn(of: Sequence, *drafts: int) -> Turn:
    return Turn(of, Run((ANCHOR, *drafts), 2, (0,), 1 + len(drafts)), len(drafts))


def rows(*ids: int) -> torch.Tensor:
    """Return rows whose largest logits are these ids."""
    return torch.nn.functional.one_hot(torch.tensor(ids), SIZE).float()


def ids(verdict: Verdict) -> tuple[int, ...]:
    return tuple(choice.token_id for choice in verdict.chosen)


@pytest.mark.parametrize("count", range(5))
def test_drafts_stay_up_to_the_first_that_the_target_does_not_choose(count: int):
    right = [5, 6, 7, 8, 4]
    drafts = right[:count] + [1] * (4 - count)
    (verdict,) = verify([turn(sequence(), *drafts)], rows(*right))
    assert ids(verdict) == tuple(right[: count + 1])
    assert (verdict.num_kept, verdict.num_accepted) == (count + 1, count)


def test_what_is_right_again_after_a_wrong_draft_token_does_not_stay():
    (verdict,) = verify([turn(sequence(), 5, 1, 7, 8)], rows(5, 6, 7, 8, 4))
    assert ids(verdict) == (5, 6)


def test_each_turn_has_the_rows_it_asked_for():
    chunk = Turn(sequence(), Run((3, 4, 5), 0, (0,), 0), num_catch_up=1)
    last_chunk = Turn(sequence(), Run((3, 4), 0, (0,), 1))
    verdicts = verify(
        [turn(sequence(), 5, 6), chunk, last_chunk, turn(sequence())], rows(5, 6, 7, 8, 4)
    )
    assert [ids(verdict) for verdict in verdicts] == [(5, 6, 7), (), (8,), (4,)]
    assert [verdict.num_kept for verdict in verdicts] == [3, 3, 2, 1]


def test_nothing_is_kept_after_the_token_that_ends_the_request():
    stops = {"ignore_eos": True, "stop_token_ids": (6,)}
    (verdict,) = verify([turn(sequence(**stops), 5, 6, 7)], rows(5, 6, 7, 8))
    assert ids(verdict) == (5, 6)
    assert (verdict.num_kept, verdict.num_accepted) == (2, 1)


def test_a_bad_row_beyond_the_first_rejected_draft_token_touches_nobody():
    logits = rows(5, 6, 7, 8, 4)
    logits[2:4] = float("nan")
    first, second = verify([turn(sequence(), 5, 1, 7), turn(sequence())], logits)
    assert (ids(first), first.error) == ((5, 6), None)
    assert (ids(second), second.error) == ((4,), None)


def test_a_bad_row_beyond_the_end_of_the_request_touches_nobody():
    logits = rows(0, 6)
    logits[1] = float("nan")
    (verdict,) = verify([turn(sequence(), 0)], logits)
    assert (ids(verdict), verdict.error) == ((0,), None)


def test_a_bad_row_that_plain_decoding_would_reach_comes_after_the_tokens_before_it():
    logits = rows(5, 6, 7, 4)
    logits[1] = float("nan")
    bad, good = verify([turn(sequence(), 5, 6), turn(sequence())], logits)
    assert ids(bad) == (5,)
    assert "nan" in (bad.error or "")
    assert (ids(good), good.error) == ((4,), None)


EVERY_PARAMETER = {
    "repetition_penalty": 1.4,
    "presence_penalty": 0.6,
    "frequency_penalty": 0.5,
    "logit_bias": ((7, 1.5),),
    "min_tokens": 4,
    "num_logprobs": 3,
    "top_k": 9,
    "top_p": 0.9,
    "min_p": 0.01,
}


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_a_row_is_chosen_as_if_the_drafts_before_it_had_been_emitted(temperature: float):
    logits = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(8)) * 3
    of = sequence(temperature=temperature, **EVERY_PARAMETER)
    output: list[int] = []
    expected = []
    for index in range(5):
        row = ChoiceRow(of.request.sampling, 3, 0, 2 + index, (1, 2), tuple(output), (0,))
        expected += choose(logits[index : index + 1], [row])
        output.append(expected[-1].token_id)
    (verdict,) = verify([turn(of, *output[:4])], logits)
    assert verdict.chosen == tuple(expected)


def test_ids_before_a_row_are_listed_only_for_parameters_that_read_them():
    plain, penal = sequence(), sequence(frequency_penalty=0.1)
    assert plain.choice_row((5, 6)).output_token_ids is plain.output_token_ids
    assert list(penal.choice_row((5, 6)).output_token_ids) == [5, 6]


def test_a_single_draft_token_that_is_wrong_is_never_kept():
    drive = Drive(script=all_wrong(VOCAB), planner=always(1))
    asked = request("r", max_tokens=32)
    drive.submit(asked)
    drive.finish()
    assert_right(drive, asked)
    assert (total(drive, "num_draft_tokens"), total(drive, "num_accepted_tokens")) == (30, 0)
    assert len(drive.results) == 32


def says(token_id: int) -> Script:
    return lambda row, right: (token_id,) * row.num_drafts


@pytest.mark.parametrize(
    "script", [says(17), random_wrong(0.5, VOCAB, seed=1), right_up_to(2, VOCAB)]
)
def test_accepted_are_exactly_the_drafts_that_equal_the_plain_continuation(script: Script):
    matched = 0

    def compared(row, right):
        nonlocal matched
        proposal = script(row, right)
        for draft, id_ in zip(proposal, right, strict=False):
            if draft != id_:
                break
            matched += 1
        return proposal

    drive = Drive(script=compared, planner=always(5))
    requests = [request(f"r{index}") for index in range(3)]
    drive.submit(*requests)
    drive.finish()
    assert_right(drive, *requests)
    assert total(drive, "num_accepted_tokens") == matched
    assert sum(places(drive, "verified_accepted")) == matched
    assert sum(speculation(drive, each.request_id).num_accepted for each in requests) == matched


class NotANumberAt(HashLM):
    """Answers NaN for rows at these positions."""

    def __init__(self, *positions: int) -> None:
        super().__init__()
        self.positions = set(positions)

    def forward(self, batch: Batch, taps: tuple[int, ...] = ()) -> TargetOutput:
        output = super().forward(batch, taps)
        for row, position in enumerate(batch.positions[batch.logit_rows].tolist()):
            if position in self.positions:
                output.logits[row] = float("nan")
        return output


def test_a_request_that_fails_in_the_middle_of_a_draft_is_given_what_plain_decoding_gives():
    answers = []
    for script in (None, right_up_to(7, VOCAB)):
        drive = Drive(model=NotANumberAt(30), script=script, planner=always(7))
        drive.submit(request("r"))
        drive.finish()
        assert total(drive, "num_accepted_tokens") == (9 if script else 0)
        answers.append((drive.answer("r"), drive.outputs["r"][-1].error))
    assert answers[0] == answers[1]
    assert answers[0][0].finish_reason is FinishReason.ERROR
    assert len(answers[0][0].token_ids) == 11
