"""From settings to an engine with a drafter: what it drafts, and what is said of it."""

import logging

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, load_tiny_drafter, write_tiny
from benchmarks.rigs.tiny_mtp import TinyMtp
from dflash.load import load_engine, load_models, load_target
from dflash.plan import Arm, DraftPlan, FixedPlanner
from dflash.request import GenerateRequest, SamplingParams
from tests.rigs.drafter_config import TARGET, drafter_config, with_drafter
from tests.rigs.loaded_drafter import row


@pytest.fixture
def config(tmp_path):
    return drafter_config(tmp_path)


def results_of(engine, temperature):
    params = SamplingParams(temperature=temperature)
    for name, prompt in (("a", (3, 4, 5)), ("b", tuple(range(3, 40)))):
        engine.submit(GenerateRequest(name, prompt, 24, params, seed=7))
    ids, num_drafted = {"a": [], "b": []}, 0
    while engine.has_work:
        result = engine.step()
        assert result.stats.drafter_fault is None
        num_drafted += result.stats.num_draft_tokens
        for output in result.outputs:
            ids[output.request_id].extend(output.token_ids)
    return ids, num_drafted


class Spy:
    """Passes calls on and keeps how many draft tokens each row asked for."""

    def __init__(self, drafter, asked):
        self.observe = drafter.observe
        self._drafter, self._asked = drafter, asked

    def propose(self, rows):
        self._asked.append([row.num_drafts for row in rows])
        return self._drafter.propose(rows)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "kind",
    [
        TinyDrafter(version=1),
        TinyDrafter(draft_vocab_size=24),
        TinyMtp(),
        TinyMtp(window=20, draft_vocab_size=24, has_offset_norms=True),
    ],
)
def test_an_engine_with_a_drafter_gives_the_ids_of_one_without(config, tmp_path, kind, temperature):
    write_tiny(tmp_path / "other", kind, TARGET)
    plain, none_drafted = results_of(load_engine(with_drafter(config, None)), temperature)

    engine = load_engine(with_drafter(config, str(tmp_path / "other"), draft_length=5))
    drafted, num_drafted = results_of(engine, temperature)

    assert drafted == plain
    assert num_drafted > 20
    assert none_drafted == 0


def test_a_served_engine_has_one_block_a_step_drafted_to_its_end(config):
    engine = load_engine(with_drafter(config, config.speculation.drafter, draft_length=1))
    asked = []
    (drafting,) = engine._ladder._drafters.values()
    drafter = drafting._drafter
    drafting._drafter = Spy(drafter, asked)
    for name in ("a", "b"):
        engine.submit(GenerateRequest(name, (3, 4, 5), 12, SamplingParams(), seed=7))
    while engine.has_work:
        engine.step()
    both = [sorted(counts) for counts in asked if len(counts) == 2]
    assert both
    assert all(counts == [1, drafter.facts.max_draft_length] for counts in both)


def test_two_drafters_of_one_target_draft_each_by_its_own_weights(config, tmp_path):
    target = load_target(config)

    def drafts(name, seed, beside):
        kind = TinyDrafter(seed=seed)
        drafter = load_tiny_drafter(tmp_path / name, kind, beside, max_runs=1)
        return drafter.propose([row(0)])

    second_alone = drafts("alone", 1, load_target(config))
    assert drafts("first", 0, target) != second_alone
    assert drafts("second", 1, target) == second_alone


def test_a_drafter_takes_the_form_and_the_type_of_its_target(config):
    models = load_models(config)

    (held,) = models.drafters
    drafter, form = held.present(), models.target.exactness.form
    assert drafter.block.form == drafter.context.form == form


def test_a_target_can_be_loaded_without_its_drafter(config):
    assert load_target(config).runner.facts == load_models(config).target.runner.facts


@pytest.mark.parametrize(
    ("asked", "in_force", "words"),
    [
        (0, 0, "loaded, and not used: engine.speculation.draft_length is 0"),
        (5, 5, "5 draft tokens a request and step"),
        (15, 7, "7 draft tokens a request and step: engine.speculation.draft_length is 15"),
    ],
)
def test_a_drafter_is_said_with_its_block_and_the_length_in_force(
    config, tmp_path, caplog, asked, in_force, words
):
    with caplog.at_level(logging.INFO):
        engine = load_engine(with_drafter(config, str(tmp_path / "drafter"), asked))

    said = engine.speculation
    assert (said.drafter, said.draft_length) == ("drafter", in_force)
    assert said.detail.startswith("drafter, DFlash v2, block of 8: an anchor and up to 7 draft")
    assert words in said.detail
    assert said.detail in caplog.text
    most = 0
    engine.submit(GenerateRequest("a", (3, 4, 5), 60, SamplingParams(temperature=0.0)))
    while engine.has_work:
        most = max(most, engine.step().stats.num_draft_tokens)
    assert most == in_force


def test_an_mtp_head_is_said_with_its_reach(config, tmp_path):
    write_tiny(tmp_path / "head", TinyMtp(draft_length=3), TARGET)

    said = load_engine(with_drafter(config, str(tmp_path / "head"), 5)).speculation

    assert (said.drafter, said.draft_length) == ("head", 3)
    assert said.detail == (
        "head, MTP, chain of up to 3 draft tokens; 3 draft tokens a request and step: "
        "engine.speculation.draft_length is 5, over its reach"
    )


def test_several_drafters_are_one_ladder_and_the_first_drafts_at_first(config, tmp_path):
    head = write_tiny(tmp_path / "head", TinyMtp(draft_length=3), TARGET)
    plain, _ = results_of(load_engine(with_drafter(config, None)), 1.0)

    engine = load_engine(with_drafter(config, (str(tmp_path / "drafter"), str(head)), 5))

    said = engine.speculation
    assert (said.drafter, said.draft_length) == ("drafter", 5)
    assert [(each.name, each.kind, each.max_draft_length) for each in said.drafters] == [
        ("drafter", "dflash2", 7),
        ("head", "mtp", 3),
    ]
    assert said.detail.endswith("; beside it head, MTP, chain of up to 3 draft tokens")
    names = frozenset({"dflash2", "mtp"})
    engine.set_planner(FixedPlanner(DraftPlan(Arm("dflash2", 2), {"b": Arm("mtp", 3)}, names)))
    assert results_of(engine, 1.0)[0] == plain


def test_a_drafter_from_a_hub_goes_by_its_id(config, monkeypatch, tmp_path):
    found = str(tmp_path / "drafter")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda _hub_id, **_options: found)

    models = load_models(with_drafter(config, "someone/tiny-dflash"))

    assert models.speculation.drafter == "someone/tiny-dflash"
