"""The co-tenant's script, the load that is compared, and what counts as given up and had again."""

from types import SimpleNamespace

import pytest

from benchmarks.rigs.hash_lm import HashLM
from benchmarks.rigs.nvml_shim import NvmlShim
from benchmarks.vram import __main__ as vram
from benchmarks.vram.acts import CLOCK_MHZ, Act, acts
from benchmarks.vram.load import SteadyLoad, alone, requests_for
from benchmarks.vram.timeline import Loss, WatchedPolicy, context_pages, restored_share
from dflash.config import EngineLimits
from dflash.engine import Engine
from dflash.plan import Decoding, DraftPlan, PlanSignals, Release
from dflash.stats import EngineCounts, StepStats

PROMPTS = [[1, 2, 3 + index] for index in range(4)]
LIMITS = EngineLimits(max_num_seqs=3)


def test_a_co_tenant_takes_what_leaves_the_share_it_is_told_to_leave():
    assert Act("takes some", 1.0, 0.25).script(1000, 600)["cotenant"] == 150
    assert Act("takes all", 1.0, 0.0).script(1000, 600)["cotenant"] == 400
    assert Act("comes late", 1.0, 0.25).script(1000, 900)["cotenant"] == 0


def test_each_act_undoes_the_trouble_of_the_one_before():
    script = [act.script(1000, 500) for act in acts(1000)]
    troubles = [(s["memory_error"], s["lied_free"], s["clock_mhz"], s["cotenant"]) for s in script]
    assert troubles[0] == troubles[-1] == (0, -1, CLOCK_MHZ, 0)
    assert len(set(troubles)) == 7
    assert all(set(each) == set(script[0]) for each in script)


def served(expected, model=None) -> SteadyLoad:
    model = model or HashLM()
    requests = requests_for(PROMPTS, 12)
    engine = Engine(model, LIMITS, prefix_caching=False)
    load = SteadyLoad(engine, requests, expected, num_live=3)
    for _ in range(30):
        load.step()
    load.drain()
    return load


def test_a_steady_load_ends_all_that_it_asks_and_finds_each_id_that_differs():
    expected = alone(HashLM(), requests_for(PROMPTS, 12))
    assert [len(ids) for ids in expected] == [12, 9, 6, 12]
    load = served(expected)
    assert load.num_ended > 6
    assert (load.num_failed, load.num_differing_ids, load.faults) == (0, 0, set())
    other = [(ids[0] ^ 1, *ids[1:]) for ids in expected]
    assert served(other).num_differing_ids == load.num_ended


def test_a_request_that_fails_is_counted_and_lacks_its_ids():
    class Breaks(HashLM):
        num_steps = 0

        def forward(self, batch, taps=()):
            self.num_steps += 1
            if self.num_steps == 5:
                raise RuntimeError("the device is gone")
            return super().forward(batch, taps)

    load = served(alone(HashLM(), requests_for(PROMPTS, 12)), Breaks())
    assert load.num_failed == 3
    assert load.num_differing_ids > 0
    assert load.faults == {"RuntimeError: the device is gone"}


def signals(behind: int) -> PlanSignals:
    decoding = (Decoding("a", 101), Decoding("b", 61))
    counts = EngineCounts(2, 0, 0, 12, 0, 100)
    return PlanSignals(counts, decoding, StepStats(), {"mtp": behind}, 4, page_size=16)


def test_pages_of_context_are_those_that_are_not_behind():
    assert context_pages(signals(0), "mtp") == 10
    assert context_pages(signals(60), "mtp") == 6
    assert context_pages(signals(200), "mtp") == 0


def test_no_more_comes_back_than_was_lost():
    assert restored_share([]) == 1.0
    assert restored_share([Loss("a", 10, 4), Loss("b", 10, 90)]) == 0.7


class Policy:
    """Says what it is told to."""

    def __init__(self) -> None:
        arm = SimpleNamespace(name="plain")
        governor = SimpleNamespace(level="red", release=SimpleNamespace(name="CONTEXT_PAGES"))
        state = SimpleNamespace(governor=governor, home_of=lambda arm: arm)
        plan = SimpleNamespace(arm=arm)
        self.decision = SimpleNamespace(state=state, plan=plan, reason="memory_red")
        self.says = DraftPlan()

    def plan(self, _signals: PlanSignals) -> DraftPlan:
        return self.says


def test_what_is_given_up_leaves_what_is_held_and_comes_back(tmp_path):
    drafter = SimpleNamespace(is_held=True, weights_bytes=100, context_bytes=30)
    policy = Policy()
    shim = NvmlShim(tmp_path, tmp_path, total=1000)
    watched = WatchedPolicy(policy, {"mtp": drafter}, 500, shim, clock=lambda: 0.0)

    def told() -> int:
        return int((tmp_path / "own").read_text())

    watched.plan(signals(0))
    assert told() == watched.own_bytes == 630
    for release, is_held, behind, held in (
        (Release.CONTEXT, True, 0, 630),
        # Only now has the step been computed that gives it back.
        (Release.WEIGHTS, True, 160, 600),
        (Release.WEIGHTS, False, 160, 500),
        (None, False, 160, 500),
        (None, True, 48, 630),
    ):
        drafter.is_held = is_held
        policy.says = DraftPlan(released={"mtp": release} if release else {})
        watched.plan(signals(behind))
        assert told() == held
    assert watched.losses == [Loss("mtp", 10, 7)]
    assert (watched.num_weights_released, watched.num_weights_loaded) == (1, 1)
    # Nothing that the table tells has changed.
    assert len(watched.moments) == 1


@pytest.mark.parametrize(
    ("name", "missing", "said"),
    [("compiler", lambda: None, "no C compiler"), ("find_spec", lambda _: None, "nvidia-ml-py")],
)
def test_where_no_device_can_be_made_it_says_so_and_is_content(
    name, missing, said, monkeypatch, capsys
):
    monkeypatch.setattr(vram, "compiler", lambda: "cc")
    place = vram if name == "compiler" else vram.importlib.util
    monkeypatch.setattr(place, name, missing)
    with pytest.raises(SystemExit) as ended:
        vram.measure(SimpleNamespace())
    assert ended.value.code == 0
    assert said in capsys.readouterr().out
