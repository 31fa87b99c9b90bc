"""The keys file changes under a running server: what is right is taken, what is wrong is said."""

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deployments.guard import keys_file
from deployments.guard.guard import Guard
from deployments.guard.keys import hash_of, new_key
from deployments.guard.keys_file import KeysFile
from deployments.guard.settings import GuardSettings
from tests.rigs.http_server import eventually, serving
from tests.rigs.keyed_server import KeyedServer, entry, serving_with_keys, write_keys


@pytest.fixture
def followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[KeyedServer, httpx.Client]]:
    monkeypatch.setattr(keys_file, "LOOK_INTERVAL_S", 0.01)
    with (
        serving_with_keys(tmp_path, {"ana": ("infer", "status")}) as keyed,
        httpx.Client(base_url=keyed.server.base_url, timeout=20) as http,
    ):
        yield keyed, http


def test_a_changed_file_is_taken_without_a_restart(followed: tuple[KeyedServer, httpx.Client]):
    keyed, http = followed
    bob = new_key()

    def status_of(key: str) -> int:
        return http.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code

    assert (status_of(keyed.keys["ana"]), status_of(bob)) == (200, 401)
    write_keys(keyed.file, entry("bob", bob, "infer"))
    assert eventually(lambda: status_of(bob) == 200)
    assert status_of(keyed.keys["ana"]) == 401


@pytest.mark.parametrize("ruin", ["broken", "emptied", "removed", "locked out"])
def test_a_file_that_cannot_be_used_leaves_the_keys_before_it_in_force_and_says_why(
    followed: tuple[KeyedServer, httpx.Client], caplog: pytest.LogCaptureFixture, ruin: str
):
    keyed, http = followed
    ana, secret = keyed.bearer("ana"), new_key()

    def problem() -> str | None:
        return http.get("/readyz", headers=ana).json()["keys_problem"]

    assert problem() is None
    if ruin == "removed":
        keyed.file.unlink()
    else:
        # Each has the key where a hash, a name or YAML should be.
        contents = {
            "broken": f"keys: [\n*{secret} !{secret} {{",
            "emptied": "keys: []",
            "locked out": f"{secret}: 1\nkeys:\n- {{name: x, hash: {secret}, {secret}: [infer]}}",
        }
        keyed.file.write_text(contents[ruin])
    with caplog.at_level(logging.DEBUG):
        assert eventually(lambda: problem() is not None)
    assert str(keyed.file) in problem()
    assert secret not in problem()
    assert http.get("/v1/models", headers=ana).status_code == 200
    assert "keys_problem" not in http.get("/readyz").json()

    write_keys(keyed.file, entry("ana", keyed.keys["ana"], "infer", "status"))
    assert eventually(lambda: problem() is None)


def test_without_any_key_in_force_nobody_is_let_in_and_the_process_is_not_ready(tmp_path: Path):
    guard = Guard(GuardSettings(str(tmp_path / "absent.yaml")))
    with serving(guard=guard) as server, httpx.Client(base_url=server.base_url) as http:
        assert http.get("/livez").status_code == 200
        ready = http.get("/readyz")
        assert ready.status_code == 503
        assert "no API key is in force" in ready.json()["reason"]
        assert str(tmp_path) not in ready.text
        assert (
            http.get("/v1/models", headers={"authorization": f"Bearer {new_key()}"}).status_code
            == 401
        )


def test_a_file_that_stays_as_it_is_is_spoken_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "keys.yaml"
    for content in (None, f'keys: [{{name: ana, hash: "{hash_of(new_key())}", scopes: [infer]}}]'):
        if content is not None:
            path.write_text(content, encoding="utf-8")
        caplog.clear()
        with caplog.at_level(logging.INFO):
            keys = KeysFile(path)
            keys.look()
            keys.look()
        assert [record.name for record in caplog.records].count(keys_file.logger.name) == 1
