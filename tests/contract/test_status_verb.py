"""`dflashctl status`: the page in a terminal, and an exit code that says the same."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from deployments import status_verb
from deployments.guard.guard import Guard
from deployments.guard.keys import new_key
from deployments.guard.settings import GuardSettings
from deployments.status_text import folded
from tests.rigs.fleet import FleetServer, serving_fleet
from tests.rigs.http_server import eventually
from tests.rigs.keyed_server import entry, write_keys


@pytest.fixture(scope="module")
def served() -> Iterator[FleetServer]:
    with serving_fleet(("r1", "r2")) as server:
        server.member("r1").steps(1500)
        server.member("r2").steps(300, rows=20, right=2)

        def is_heard() -> bool:
            rows = httpx.get(f"{server.base_url}/policy").json()["replicas"]
            return all(row["num_decoding"] for row in rows)

        assert eventually(is_heard)
        yield server


def test_every_column_is_there_and_all_is_well(served: FleetServer, capsys):
    assert status_verb.main(["--url", served.base_url]) == 0
    text = capsys.readouterr().out
    assert "[well] 1 of 2 replicas speculate. Output" in text
    for said in ("dflash2:7", "since", "steady", "1 decode", "8.00 of 8", "\u2588" * 7):
        assert said in text
    for said in ("expected", "no request ended", "5.00 of", "floor 0.12", "none"):
        assert said in text
    assert "Decisions, newest first" in text
    assert "\x1b" not in text


def test_what_is_not_well_is_named_and_returns_1(served: FleetServer, capsys):
    member = served.member("r2")
    member.loop.is_healthy = False
    try:
        assert eventually(lambda: status_verb.main(["--url", served.base_url]) == 1)
        text = capsys.readouterr().out
        assert "[LOOK]" in text
        assert "! r2: no step for 99 s" in text
    finally:
        member.loop.is_healthy = True
        assert eventually(lambda: status_verb.main(["--url", served.base_url]) == 0)


def test_a_server_that_is_not_there_is_said_and_returns_1(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert status_verb.main(["--url", url]) == 1
    assert "is the server there?" in capsys.readouterr().out
    assert status_verb.main(["--url", "localhost:8000"]) == 1
    assert "give one such as http://" in capsys.readouterr().out


def test_a_variable_without_a_key_is_named(capsys, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert status_verb.main(["--key-env", "NO_SUCH_KEY"]) == 2
    assert "NO_SUCH_KEY is not set" in capsys.readouterr().err


def test_watching_goes_on_until_it_is_interrupted(served: FleetServer, capsys, monkeypatch):
    rounds = []

    def pause(_seconds: float) -> None:
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status_verb.time, "sleep", pause)
    assert status_verb.main(["--url", served.base_url, "--watch"]) == 0
    assert capsys.readouterr().out.count("replicas speculate") == 3


def decision(replica: str, reason: str, repeats: int) -> dict:
    plan = {"mode": "plain", "draft_len": 0}
    return {"replica": replica, "reason": reason, "from": plan, "to": plan, "repeats": repeats}


def test_repeats_of_one_replica_are_folded_whatever_others_did_between():
    told = [decision("a", "steady", 3), decision("b", "idle", 1), decision("a", "steady", 4)]
    assert [(each["replica"], count) for each, count in folded(told)] == [("a", 7), ("b", 1)]
    broken = [decision("a", "steady", 3), decision("a", "dwell", 1), decision("a", "steady", 4)]
    assert [count for _, count in folded(broken)] == [3, 1, 4]


def test_a_key_is_taken_from_the_variable_that_is_named(tmp_path, capsys, monkeypatch):
    keys = {name: new_key() for name in ("status", "infer")}
    file = tmp_path / "keys.yaml"
    write_keys(file, *(entry(name, key, name) for name, key in keys.items()))
    with serving_fleet(("r1",), Guard(GuardSettings(keys_file=str(file)))) as server:
        assert status_verb.main(["--url", server.base_url]) == 1
        assert "name a variable with a key by --key-env" in capsys.readouterr().out
        monkeypatch.setenv("MY_KEY", keys["infer"])
        assert status_verb.main(["--url", server.base_url, "--key-env", "MY_KEY"]) == 1
        assert "status 403" in capsys.readouterr().out
        monkeypatch.setenv("MY_KEY", keys["status"])
        assert status_verb.main(["--url", server.base_url, "--key-env", "MY_KEY"]) == 0
