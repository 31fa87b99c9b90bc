"""What operators see and order over HTTP: snapshot, decisions, pins, memory, drain."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import httpx
import pytest

from deployments import replay
from deployments import watch as watch_module
from deployments.gateway import Gateway
from deployments.http import create_app
from deployments.watch import EngineWatch
from policy.reasons import Reason
from tests.rigs.fleet import FleetClient, Member, open_member
from tests.rigs.http_server import MODEL

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
PIN = {"plan": "mtp:2", "minutes": 5, "why": "a comparison", "author": "ana"}


class Front:
    """One ingress without a socket."""

    def __init__(self, members: list[Member]) -> None:
        self.client = FleetClient(members)
        self.now_s = 1000.0
        self.watch = EngineWatch(self.client, lambda: self.now_s)
        app = create_app(Gateway(self.client, self.watch, MODEL))
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

    async def get(self, path: str, status: int = 200, **params: str) -> dict:
        answer = await self.http.get(path, params=params)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def policy(self) -> dict[str, dict]:
        return {row["replica"]: row for row in (await self.get("/policy"))["replicas"]}

    async def eventually(self, claim: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(2000):
            if await claim():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it never came true")

    async def checked_in(self) -> None:
        """Wait until a check-in that began after this call has been heard."""
        await self.watch.board.order(self.watch.board.orders, 10.0)


def on_fleet(test: Callable[..., Awaitable[None]], fronts: int = 1) -> None:
    async def main() -> None:
        members = [await open_member(name) for name in ("a", "b")]
        doors = [Front(members) for _ in range(fronts)]
        tasks = [asyncio.create_task(door.watch.run()) for door in doors]
        for door in doors:
            await door.eventually(lambda door=door: _is_ready(door))
        try:
            await asyncio.wait_for(test(members, *doors), 60)
        finally:
            for task in tasks:
                task.cancel()
            for member in members:
                member.close()

    asyncio.run(main())


async def replace_member(members: list[Member], index: int, name: str) -> None:
    """Let a replica die and another start in its place."""
    members[index].close()
    members[index] = await open_member(name)


async def _is_ready(front: Front) -> bool:
    return len(front.watch.board.heard()) == 2


@pytest.fixture(autouse=True)
def _quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "CHECK_IN_INTERVAL_S", 0.02)


def test_the_snapshot_says_of_every_replica_what_runs_why_and_what_it_brings():
    async def test(members: list[Member], front: Front) -> None:
        members[0].steps(400)
        await front.checked_in()
        rows = await front.policy()
        row = rows["a"]
        assert (row["mode"], row["draft_len"], row["plan"]) == ("dflash2", 7, "dflash2:7")
        assert row["reason"] in set(Reason)
        assert row["sentence"]
        assert row["num_decoding"] == 1
        (running_one,) = [each for each in row["acceptance"] if each["is_running"]]
        assert running_one["length"] == 8.0
        assert running_one["by_place"] == [1.0] * 7
        assert running_one["is_enough"]
        assert row["gain"]["expected"] > 2.0
        assert rows["b"]["mode"] == "plain"
        assert rows["b"]["acceptance"][0]["num_graded"] == 0
        assert not rows["b"]["acceptance"][0]["is_enough"]
        summary = (await front.get("/policy"))["summary"]
        assert summary.startswith("1 of 2 replicas speculate.")
        assert summary.endswith("No alarms.")

    on_fleet(test)


def test_the_gain_is_what_a_trial_has_measured_against_plain_decoding():
    async def test(members: list[Member], front: Front) -> None:
        members[0].steps(1500)
        await front.checked_in()
        gain = (await front.policy())["a"]["gain"]
        assert gain["realised_over"] == "plain"
        assert gain["realised"] == pytest.approx(8 * 0.010 / 0.013, rel=0.05)
        assert "x plain, measured by a trial" in (await front.get("/policy"))["summary"]

    on_fleet(test)


def test_a_replica_that_is_silent_is_called_so_and_forgotten_in_the_end():
    async def test(members: list[Member], front: Front) -> None:
        front.client.silent.add("b")
        front.now_s += 6
        await front.checked_in()
        row = (await front.policy())["b"]
        assert (row["is_stale"], row["age_s"]) == (True, 6.0)
        assert row["alarms"] == ["silent for 6 s; what follows may be out of date"]
        assert not (await front.get("/policy"))["is_well"]
        front.now_s += 120
        await front.checked_in()
        assert set(await front.policy()) == {"a"}

    on_fleet(test)


def test_decisions_come_newest_first_and_a_cursor_asks_for_what_came_since():
    async def test(members: list[Member], front: Front) -> None:
        members[0].steps(400)
        members[1].steps(100)
        await front.checked_in()
        first = await front.get("/policy/decisions")
        decisions = first["decisions"]
        assert {each["replica"] for each in decisions} == {"a", "b"}
        assert [each["at"] for each in decisions] == sorted(
            (each["at"] for each in decisions), reverse=True
        )
        nothing = await front.get("/policy/decisions", since=first["cursor"])
        assert nothing["decisions"] == []
        members[1].free_bytes[0] = 0
        members[1].steps(100)
        await front.checked_in()
        later = await front.get("/policy/decisions", since=first["cursor"], replica="b")
        red = [each for each in later["decisions"] if each["reason"] == "memory_red"]
        assert red[-1]["to"] == {"mode": "plain", "draft_len": 0}
        assert red[-1]["inputs"]["free_bytes"] == 0
        assert later["cursor"] != first["cursor"]
        one = await front.get("/policy/decisions", reason="memory_red", limit="1")
        assert [each["reason"] for each in one["decisions"]] == ["memory_red"]

    on_fleet(test)


def test_a_decision_has_what_it_weighed_what_it_stood_for_and_what_came_of_it():
    async def test(members: list[Member], front: Front) -> None:
        members[0].steps(1500)
        await front.checked_in()
        answer = await front.get("/policy/decisions", limit="1000")
        taken = [
            each
            for each in answer["decisions"]
            if each["to"]["mode"] == "dflash2" and each["from"]["mode"] != "dflash2"
        ]
        change = next(each for each in taken if each["reason"] in ("faster", "probe_ended"))
        assert {each["mode"] for each in change["considered"]} >= {"dflash2"}
        assert change["expected_gain"] > 1.0
        stood_for = sum(each["repeats"] for each in answer["decisions"])
        assert stood_for == len(members[0].desk.record._made)
        measured = [each for each in answer["decisions"] if each["realised_gain"]]
        assert measured
        assert all(each["realised_over"] for each in measured)

    on_fleet(test)


def test_decisions_outlive_the_replica_that_made_them():
    async def test(members: list[Member], front: Front) -> None:
        members[0].steps(400)
        await front.checked_in()
        before = (await front.get("/policy/decisions", replica="a"))["decisions"]
        await replace_member(members, 0, "c")
        await front.eventually(lambda: _has(front, "c"))
        after = (await front.get("/policy/decisions", replica="a"))["decisions"]
        assert before
        assert after == before

    on_fleet(test)


async def _has(front: Front, name: str) -> bool:
    return name in await front.policy()


@pytest.mark.parametrize(
    ("path", "params", "said"),
    [
        ("/policy/decisions", {"limit": "0"}, "whole number from 1 to 1000"),
        ("/policy/decisions", {"limt": "1"}, "did you mean 'limit'?"),
        ("/policy/decisions", {"reason": "memory"}, "Did you mean memory_"),
        ("/policy/decisions", {"replica": "z"}, "There are: a, b"),
        ("/policy/decisions", {"since": "a:x"}, "since is no cursor"),
        ("/policy/explain", {}, "give one of a, b"),
        ("/policy/explain", {"replica": "z"}, "There are: a, b"),
        ("/policy/signals", {"replica": "a", "format": "csv"}, "There are: jsonl"),
        ("/admin/memory", {"replica": "z"}, "There are: a, b"),
        ("/policy", {"x": "1"}, "there is no parameter 'x'"),
    ],
)
def test_a_parameter_that_cannot_act_is_refused_with_what_would(path, params, said):
    async def test(_members: list[Member], front: Front) -> None:
        error = (await front.get(path, 400, **params))["error"]
        assert error["code"] == "invalid_parameter"
        assert said in error["message"]

    on_fleet(test)


def test_the_explanation_names_guards_first_and_the_choice_last():
    async def test(members: list[Member], front: Front) -> None:
        nothing = await front.get("/policy/explain", replica="b")
        assert nothing["sentences"] == ["Nothing was decided yet."]
        members[0].free_bytes[0] = 0
        members[0].steps(100)
        await front.checked_in()
        told = await front.get("/policy/explain", replica="a")
        assert told["sentences"][0] == "Memory is red; given up for it: drafting."
        assert "kept back: memory_red" in told["sentences"][1]
        assert "1 request decodes." in told["sentences"]
        assert told["sentences"][-1].startswith("plain stays: memory_red.")

    on_fleet(test)


def test_signals_are_a_file_that_replays_to_the_bit(tmp_path, capsys):
    async def test(members: list[Member], front: Front) -> None:
        members[0].steps(800)
        answer = await front.http.get("/policy/signals", params={"replica": "a", "limit": "30"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/jsonl"
        file = tmp_path / "signals.jsonl"
        file.write_text(answer.text)

    on_fleet(test)
    assert replay.main([str(tmp_path / "signals.jsonl")]) == 0
    assert "30 decisions made again, all the same to the bit" in capsys.readouterr().out


def test_a_pin_shows_everywhere_holds_on_all_replicas_and_can_be_lifted_anywhere():
    async def test(members: list[Member], front: Front, other: Front) -> None:
        made = await front.http.post("/policy/pins", json=PIN)
        assert made.status_code == 201
        assert made.json()["obeyed_by"] == ["a", "b"]
        pin = made.json()["pin"]
        for member in members:
            member.steps(40)
        await front.checked_in()
        await other.checked_in()
        for door in (front, other):
            rows = await door.policy()
            for name in ("a", "b"):
                assert rows[name]["plan"] == "mtp:2"
                assert rows[name]["reason"] == "pinned"
                assert rows[name]["sentence"] == "ana pinned mtp:2."
                assert rows[name]["pin"] == pin
            body = await door.get("/policy")
            assert body["pins"] == [pin]
            assert "1 pin holds." in body["summary"]
            ready = await door.get("/readyz")
            assert ready["pins"] == [pin]
            assert {each["policy"]["pinned_by"] for each in ready["engines"]} == {"ana"}
        lifted = await other.http.delete(f"/policy/pins/{pin['id']}")
        assert lifted.json() == {"lifted": pin}
        await front.checked_in()
        assert (await front.get("/policy"))["pins"] == []
        assert [each["pin"] for each in (await front.policy()).values()] == [None, None]
        again = await front.http.delete(f"/policy/pins/{pin['id']}")
        assert (again.status_code, again.json()["error"]["code"]) == (404, "pin_not_found")

    on_fleet(test, fronts=2)


def test_a_pin_for_one_replica_leaves_the_others_alone_and_outlives_a_restart():
    async def test(members: list[Member], front: Front) -> None:
        await front.http.post("/policy/pins", json={**PIN, "replicas": ["a"]})
        everywhere = await front.http.post("/policy/pins", json={**PIN, "plan": "plain"})
        rows = await front.policy()
        assert (rows["a"]["pin"]["plan"], rows["b"]["pin"]["plan"]) == ("plain", "plain")
        await front.http.delete(f"/policy/pins/{everywhere.json()['pin']['id']}")
        rows = await front.policy()
        assert rows["a"]["pin"]["plan"] == "mtp:2"
        assert rows["b"]["pin"] is None
        await front.http.post("/policy/pins", json=PIN)
        await replace_member(members, 1, "c")
        await front.eventually(lambda: _has(front, "c"))
        await front.checked_in()
        assert (await front.policy())["c"]["pin"]["plan"] == "mtp:2"

    on_fleet(test)


def test_a_pin_falls_off_at_its_expiry():
    async def test(members: list[Member], front: Front) -> None:
        await front.http.post("/policy/pins", json={**PIN, "minutes": 0.005})
        assert (await front.get("/policy"))["pins"]

        async def is_gone() -> bool:
            body = await front.get("/policy")
            return not body["pins"] and not any(row["pin"] for row in body["replicas"])

        await front.eventually(is_gone)
        for member in members:
            assert member.desk.status().pinned_by is None

    on_fleet(test)


@pytest.mark.parametrize(
    ("changes", "param", "said"),
    [
        ({"plan": "mpt:2"}, "plan", "Did you mean mtp:2?"),
        ({"plan": "mtp:9"}, "plan", "Did you mean mtp:"),
        ({"replicas": ["aa"]}, "replicas", "Did you mean a?"),
        ({"replicas": []}, "replicas", "give '*' for all"),
        ({"minutes": 241}, "minutes", "minutes is 241; give over 0 and at most 240"),
        ({"minutes": 0}, "minutes", "at most 240"),
        ({"minutes": "5"}, "minutes", "valid number"),
        ({"why": " "}, "why", "say why"),
        ({"author": ""}, "author", "answerable"),
        ({"author": "a" * 301}, "author", "301 characters"),
        ({"release_drafter": True}, "release_drafter", "goes with plan 'plain' alone"),
        ({"minuts": 5}, "minuts", "Did you mean minutes?"),
    ],
)
def test_a_pin_that_cannot_work_is_refused_with_the_value_and_the_nearest(changes, param, said):
    async def test(_members: list[Member], front: Front) -> None:
        answer = await front.http.post("/policy/pins", json={**PIN, **changes})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), error
        assert said in error["message"]
        assert (await front.get("/policy"))["pins"] == []

    on_fleet(test)


@pytest.mark.parametrize("missing", ["plan", "minutes", "why"])
def test_what_a_pin_needs_is_named_where_it_is_missing(missing):
    async def test(_members: list[Member], front: Front) -> None:
        body = {key: value for key, value in PIN.items() if key != missing}
        answer = await front.http.post("/policy/pins", json=body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == missing
        assert error["message"] == f"{missing}: It is missing, and has no default: set it."
        deep = await front.http.post(
            "/policy/pins",
            content=b'{"why": ' + b"[" * 900 + b"]" * 900 + b"}",
            headers={"content-type": "application/json"},
        )
        assert deep.status_code == 400

    on_fleet(test)


def test_a_replica_without_a_policy_is_shown_and_cannot_be_pinned():
    async def test(members: list[Member], front: Front) -> None:
        running = members[0].replica._require_running()
        members[0].replica._running = type(running)(running.engine, running.loop)
        await front.checked_in()
        row = (await front.policy())["a"]
        assert (row["plan"], row["reason"]) == ("scripted:3", None)
        assert "no policy decides" in row["sentence"]
        answer = await front.http.post("/policy/pins", json=PIN)
        assert "replica a runs a fixed plan" in answer.json()["error"]["message"]
        error = (await front.get("/policy/signals", 400, replica="a"))["error"]
        assert "fixed plan" in error["message"]

    on_fleet(test)


def test_memory_sums_to_the_device_and_a_pin_to_plain_gives_the_drafters_back():
    async def test(members: list[Member], front: Front) -> None:
        def parts_of(body: dict) -> dict[str, int]:
            memory = body["replicas"][0]["memory"]
            assert sum(memory["parts"].values()) == memory["total_bytes"] == 24 << 30
            return memory["parts"]

        before = parts_of(await front.get("/admin/memory", replica="a"))
        assert before["drafter_weights"] == 2 << 30
        made = await front.http.post(
            "/policy/pins", json={**PIN, "plan": "plain", "release_drafter": True}
        )
        assert made.json()["pin"]["release_drafter"] is True
        members[0].look_around()
        await front.checked_in()
        after = parts_of(await front.get("/admin/memory", replica="a"))
        assert after["drafter_weights"] == 0
        await front.http.delete(f"/policy/pins/{made.json()['pin']['id']}")
        members[0].look_around()
        await front.checked_in()
        assert parts_of(await front.get("/admin/memory", replica="a")) == before

    on_fleet(test)


def test_a_drain_refuses_new_work_everywhere_lets_the_rest_end_and_can_be_taken_back():
    async def test(members: list[Member], front: Front, other: Front) -> None:
        for member in members:
            member.loop.may_step.clear()
        running_one = asyncio.create_task(front.http.post("/v1/chat/completions", json=CHAT))
        await front.eventually(lambda: _is_live(front))
        drained = await front.http.post("/admin/drain")
        assert drained.json()["is_draining"]
        assert not drained.json()["is_drained"]
        await other.checked_in()
        for door in (front, other):
            refused = await door.http.post("/v1/chat/completions", json=CHAT)
            assert (refused.status_code, refused.json()["error"]["code"]) == (
                503,
                "server_draining",
            )
            assert int(refused.headers["retry-after"]) >= 1
            ready = await door.get("/readyz")
            assert (ready["ready"], ready["is_draining"]) == (True, True)
        for member in members:
            member.loop.may_step.set()
        assert (await running_one).json()["usage"]["completion_tokens"] == 2
        for door in (front, other):
            await door.eventually(lambda door=door: _is_drained(door))
            ready = await door.get("/readyz", 503)
            assert ready["reason"].startswith("drained")
            assert "Draining" in (await door.get("/policy"))["summary"]
        assert not (await other.http.delete("/admin/drain")).json()["is_draining"]
        await front.checked_in()
        answer = await front.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200

    on_fleet(test, fronts=2)


async def _is_live(front: Front) -> bool:
    return front.client.num_live == 1


async def _is_drained(front: Front) -> bool:
    return (await front.get("/admin/drain"))["is_drained"]


def test_latency_is_that_of_the_requests_that_ended_lately():
    async def test(_members: list[Member], front: Front) -> None:
        assert (await front.policy())["a"]["latency"]["ttft_p95_s"] is None
        for _ in range(2):
            await front.http.post("/v1/chat/completions", json=CHAT)
        await front.checked_in()
        for row in (await front.policy()).values():
            assert row["latency"]["num_requests"] == 1
            assert row["latency"]["ttft_p95_s"] > 0.0

    on_fleet(test)


def test_the_page_holds_no_data_and_runs_nothing_but_its_own_script():
    async def test(_members: list[Member], front: Front) -> None:
        page = await front.http.get("/status")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "://" not in page.text
        json.dumps(policy)

    on_fleet(test)
