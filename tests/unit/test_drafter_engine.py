"""A real drafter in a busy engine drafts what it drafts in a quiet one: its context is right."""

import random
from dataclasses import replace

import pytest

from benchmarks.rigs.tiny_drafter import TinyDrafter, load_tiny_drafter
from benchmarks.rigs.tiny_mtp import TinyMtp
from dflash.config import Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.engine import Engine
from dflash.load import load_target
from dflash.plan import Arm, DraftPlan, FixedPlanner
from dflash.request import FinishReason, GenerateRequest, SamplingParams
from tests.rigs.tiny_checkpoint import write_tiny_checkpoint

QUIET = EngineLimits(max_num_seqs=1, max_num_batched_tokens=128)
BUSY = EngineLimits(max_num_seqs=6, max_num_batched_tokens=24)
SHARED = tuple(3 + (7 * i) % 41 for i in range(32))


class Remembering:
    """A drafter that keeps what it proposed for whom."""

    def __init__(self, drafter):
        self._drafter = drafter
        self.facts = drafter.facts
        self.observe = drafter.observe
        self.proposed = {}

    def propose(self, rows):
        drafts = self._drafter.propose(rows)
        for row, draft in zip(rows, drafts, strict=True):
            self.proposed[row.seed, row.position] = (row.anchor, *draft)
        return drafts


class Toggling:
    """Warm and drafting, then cold for a while: the context has to be caught up."""

    def __init__(self, drafter):
        self._name = drafter.facts.name
        self._steps = 0

    def plan(self, _signals):
        self._steps += 1
        if self._steps % 7 in (4, 5):
            return DraftPlan()
        return DraftPlan(Arm(self._name, 1 + self._steps % 5), warm=frozenset({self._name}))


def full(drafter):
    name = drafter.facts.name
    return FixedPlanner(DraftPlan(Arm(name, 7), warm=frozenset({name})))


def requests():
    """Prompts of one page to three, most with the same beginning."""
    for index in range(12):
        prompt = (*SHARED[: 12 + 3 * (index % 8)], *(3 + (index * i) % 40 for i in range(9)))
        params = SamplingParams(temperature=(0.0, 1.0, 0.5)[index % 3])
        yield GenerateRequest(str(index), prompt, 30, params, seed=index)


def loaded(tmp_path, kind):
    """Return a target, and a drafter for it that remembers."""
    config = EngineConfig(
        model=str(write_tiny_checkpoint(tmp_path / "model")),
        dtype=Dtype.BFLOAT16,
        num_threads=1,
        cache_dir=str(tmp_path / "cache"),
        kv_cache=KVCacheConfig(memory_gib=0.002),
    )
    target = load_target(config)
    return target, Remembering(load_tiny_drafter(tmp_path / "drafter", kind, target, max_runs=4))


def with_few_pages(target):
    """Return the target with pages for little more than two requests, so that some lose theirs."""
    return replace(
        target.runner, facts=replace(target.runner.facts, num_pages=14, max_model_len=128)
    )


def assert_alike(some, others):
    """Drafts at the same place begin alike, whatever their lengths."""
    common = some.keys() & others.keys()
    assert len(common) > 50
    for key in common:
        one, other = some[key], others[key]
        shorter = min(len(one), len(other))
        assert one[:shorter] == other[:shorter], key


def served(engine, asked):
    ids = {request.request_id: [] for request in asked}
    num_preemptions = 0
    for request in asked:
        engine.submit(request)
    while engine.has_work:
        result = engine.step()
        assert result.stats.drafter_fault is None
        num_preemptions += result.stats.num_preempted
        engine.check()
        for output in result.outputs:
            assert output.finish_reason is not FinishReason.ERROR
            ids[output.request_id].extend(output.token_ids)
    return ids, num_preemptions


@pytest.mark.parametrize(
    "kind",
    [
        TinyDrafter(version=1),
        TinyDrafter(window=20),
        TinyDrafter(draft_vocab_size=24),
        TinyMtp(),
        TinyMtp(window=20, draft_vocab_size=24),
    ],
)
def test_a_busy_engine_drafts_what_a_quiet_one_drafts(tmp_path, kind):
    target, drafter = loaded(tmp_path, kind)

    expected = {}
    for request in requests():
        engine = Engine(target.runner, QUIET, drafters=[drafter], planner=full(drafter))
        expected |= served(engine, [request])[0]
    quiet, drafter.proposed = drafter.proposed, {}

    busy = Engine(with_few_pages(target), BUSY, drafters=[drafter], planner=Toggling(drafter))
    ids, num_preemptions = served(busy, list(requests()))

    assert ids == expected
    assert num_preemptions > 0
    assert_alike(quiet, drafter.proposed)


@pytest.mark.parametrize("kind", [TinyDrafter(), TinyMtp()])
def test_after_hundreds_of_short_requests_the_same_is_drafted_as_before(tmp_path, kind):
    target, drafter = loaded(tmp_path, kind)
    engine = Engine(with_few_pages(target), BUSY, drafters=[drafter], planner=full(drafter))
    expected, _ = served(engine, list(requests()))
    before, drafter.proposed = drafter.proposed, {}

    engine.set_planner(Toggling(drafter))
    draw = random.Random(3)
    for index in range(400):
        # Half of them leave pages behind that the probe will share, some computed in a cold step.
        prompt = SHARED[: draw.choice((0, 32))]
        prompt += tuple(draw.randrange(3, 44) for _ in range(draw.randrange(1, 9)))
        params = SamplingParams(temperature=draw.choice((0.0, 1.0)))
        engine.submit(GenerateRequest(f"short-{index}", prompt, draw.randrange(1, 9), params, 99))
        for _ in range(draw.randrange(4)):
            engine.step()
        if draw.random() < 0.2:
            engine.abort(f"short-{draw.randrange(index + 1)}")
    while engine.has_work:
        engine.step()

    engine.set_planner(full(drafter))
    drafter.proposed = {}
    assert served(engine, list(requests()))[0] == expected
    assert_alike(before, drafter.proposed)
