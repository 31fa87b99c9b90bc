"""A replica with a policy: what it hands over, what it shows, and that both end together."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.rigs.made_up_times import step_times
from deployments import replica as replica_module
from deployments.policy_desk import PolicyDesk
from deployments.replica import EngineReplica
from dflash.config import EngineConfig, EngineLimits
from policy.vram import StandInProbe
from tests.rigs.http_server import eventually, open_replica

PIN = {
    "arm": "mtp:2",
    "replicas": ["b"],
    "author": "ana",
    "reason": "a comparison",
    "expires": "2200-01-31T18:00:00Z",
}


def run(test: Callable[[EngineReplica, PolicyDesk], None]) -> None:
    """Run a test on a replica whose policy has begun."""

    async def opened() -> None:
        here, _ = await open_replica(EngineConfig())
        desk = PolicyDesk(step_times(), StandInProbe(lambda: (1000, 900)), "a")
        desk.start()
        here._running = replace(here._require_running(), policy=desk)
        test(here, desk)
        desk.stop()

    asyncio.run(asyncio.wait_for(opened(), 30))


def test_its_orders_reach_the_policy_and_are_shown():
    def test(here: EngineReplica, desk: PolicyDesk) -> None:
        here.reconfigure({"policy": {"max_concurrency": {"mtp": 8}}})
        shown = here.status()
        assert shown.user_config_problem is None
        assert shown.policy == desk.status()
        assert shown.policy is not None
        assert shown.policy.max_concurrency == {"mtp": 8}

    run(test)


def test_an_order_that_cannot_work_leaves_limits_and_policy_as_they_were():
    def test(here: EngineReplica, desk: PolicyDesk) -> None:
        here.reconfigure({"limits": {"max_num_seqs": 3}, "policy": {"dwell_s": 5.0}})
        before = desk.planner.surroundings
        here.reconfigure({"limits": {"max_num_seqs": 4}, "policy": {"max_concurrency": {"x": 1}}})
        shown = here.status()
        assert "'x', which is not here" in (shown.user_config_problem or "")
        assert shown.limits == EngineLimits(max_num_seqs=3)
        assert desk.planner.surroundings is before

    run(test)


def test_an_order_may_name_the_replicas_that_an_ingress_knows():
    def test(here: EngineReplica, desk: PolicyDesk) -> None:
        here.reconfigure({})
        here.reconfigure({"pins": [PIN]})
        assert "No such replica. There are a" in (here.status().user_config_problem or "")
        here.check_in((), ("a", "b"))
        here.reconfigure({"pins": [PIN]})
        assert here.status().user_config_problem is None
        assert [pin.author for pin in desk.planner.surroundings.pins] == ["ana"]

    run(test)


def test_a_replica_that_missed_a_check_in_is_still_there_and_one_long_gone_is_not(monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(replica_module.time, "monotonic", lambda: now_s[0])

    def test(here: EngineReplica, desk: PolicyDesk) -> None:
        here.check_health()
        here.check_in((), ("a", "b"))
        now_s[0] += 3.0
        here.check_in((), ("a",))
        here.reconfigure({"pins": [PIN]})
        assert here.status().user_config_problem is None
        now_s[0] += 60.0
        here.check_in((), ("a",))
        here.reconfigure({"pins": [PIN]})
        assert "No such replica" in (here.status().user_config_problem or "")

    run(test)


def test_after_its_first_health_check_the_first_order_is_read_strictly():
    def test(here: EngineReplica, desk: PolicyDesk) -> None:
        here.check_health()
        here.reconfigure({"pins": [PIN]})
        assert "No such replica" in (here.status().user_config_problem or "")
        assert not desk.planner.surroundings.pins

    run(test)


@pytest.mark.parametrize("orders", [{"policy": {"max_draft_length": 3}}, {"pins": [PIN]}])
def test_orders_without_a_policy_are_said_to_do_nothing_and_limits_hold(orders):
    async def test() -> None:
        here, _ = await open_replica(EngineConfig())
        here.reconfigure({"limits": {"max_num_seqs": 3}, **orders})
        assert "set engine.speculation.draft_length to auto" in here.status().user_config_problem
        assert here.status().limits == EngineLimits(max_num_seqs=3)
        here.reconfigure({"limits": {"max_num_seqs": 3}, "policy": {}})
        assert here.status().user_config_problem is None

    asyncio.run(asyncio.wait_for(test(), 30))


def test_the_policy_ends_with_its_replica():
    # Another test's may still be on its way out.
    before = set(threading.enumerate())

    def watching() -> list[threading.Thread]:
        here = set(threading.enumerate()) - before
        return [each for each in here if each.name == "memory-watch"]

    async def test() -> None:
        here, _ = await open_replica(EngineConfig())
        desk = PolicyDesk(step_times(), StandInProbe(lambda: (1000, 900)), "a")
        desk.start()
        assert len(watching()) == 1
        here._running = replace(here._require_running(), policy=desk)
        here.__del__()
        assert not watching()

    asyncio.run(asyncio.wait_for(test(), 30))


def test_an_idle_replica_lets_its_policy_look_around(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica_module, "_GUARD_INTERVAL_S", 0.01)

    async def test() -> None:
        here, loop = await open_replica(EngineConfig())
        await asyncio.sleep(0.1)
        assert loop.num_looks == 0
        desk = PolicyDesk(step_times(), StandInProbe(lambda: (1000, 900)), "a")
        here._running = replace(here._require_running(), policy=desk)
        assert await asyncio.to_thread(eventually, lambda: loop.num_looks > 0)

    asyncio.run(asyncio.wait_for(test(), 30))
