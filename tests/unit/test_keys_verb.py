"""`dflashctl keys`: the key is shown once, and the file has what only its holder can match."""

import io
import sys
from pathlib import Path

import pytest
import yaml

from deployments.cli import main
from deployments.guard.keys import ApiKey, KeyRing, hash_of, new_key, read_keys
from deployments.guard.scopes import KeyScope
from dflash.errors import ConfigError


def drawn(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Return what went to standard output and to standard error."""
    assert main(["keys", "new", *arguments]) == 0
    return capsys.readouterr()


def test_a_new_key_is_shown_once_and_its_line_is_of_a_file_that_knows_it(
    capsys: pytest.CaptureFixture[str],
):
    line, shown = drawn(capsys, "ana", "--scopes", "infer", "status")
    key = shown.splitlines()[0]
    assert key not in line

    (ana,) = read_keys(f"keys:\n{line}".encode())

    assert (ana.name, ana.scopes) == ("ana", ("infer", "status"))
    assert KeyRing((ana,)).find(key.encode()) == ana
    assert KeyRing((ana,)).find(new_key().encode()) is None


def test_an_own_key_comes_from_standard_input_and_is_shown_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    own = "sk-" + "7" * 40
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{own}\n"))
    line, shown = drawn(capsys, "old", "--scopes", "admin", "--own")
    assert own not in line + shown
    assert KeyRing(read_keys(f"keys:\n{line}".encode())).find(own.encode()) is not None


@pytest.mark.parametrize("own", ["", "short", "x" * 31, "x" * 513, "with space" * 4, "é" * 40])
def test_an_own_key_that_could_be_guessed_or_not_be_sent_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own: str
):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{own}\n"))
    assert main(["keys", "new", "old", "--scopes", "infer", "--own"]) == 1
    out, error = capsys.readouterr()
    assert "32 to 512 characters" in error
    assert not out
    assert not own or own not in error


@pytest.mark.parametrize(
    "arguments", [["ana", "--scopes", "root"], ["ana"], ["ana", "--scopes"], []], ids=str
)
def test_what_is_no_order_is_refused_with_what_is(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
):
    with pytest.raises(SystemExit):
        main(["keys", "new", *arguments])
    assert "usage: dflashctl keys new" in capsys.readouterr().err


def test_a_scope_that_there_is_not_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit):
        main(["keys", "new", "ana", "--scopes", "root"])
    problem = capsys.readouterr().err.splitlines()[-1]
    assert "'root'" in problem
    assert [scope for scope in KeyScope if scope not in problem] == []


def test_a_name_that_could_hide_in_a_log_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["keys", "new", "a b\n", "--scopes", "infer"]) == 1
    assert "name must be 1 to 64" in capsys.readouterr().err


def test_equal_keys_never_look_equal_and_a_key_prints_without_its_hash():
    key = new_key()
    first, second = hash_of(key), hash_of(key)
    assert first.split(":")[-1] != second.split(":")[-1]
    assert first not in repr(ApiKey("ana", first, (KeyScope.INFER,)))


def test_no_other_key_is_taken_for_one_and_each_is_found_among_many():
    own = [new_key() for _ in range(20)]
    ring = KeyRing(
        tuple(ApiKey(f"n{index}", hash_of(key), (KeyScope.INFER,)) for index, key in enumerate(own))
    )
    assert [ring.find(key.encode()).name for key in own] == [f"n{index}" for index in range(20)]
    strange = [new_key() for _ in range(2000)] + [key[:-1] for key in own] + ["", own[0] + own[1]]
    assert not [key for key in strange if ring.find(key.encode()) is not None]


GOOD = {"name": "ana", "hash": hash_of(new_key()), "scopes": ["infer"]}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([{**GOOD, "scope": ["infer"]}], "Did you mean scopes?"),
        ([{**GOOD, "scopes": []}], "scopes is empty"),
        ([{**GOOD, "scopes": ["root"]}], "file.keys[0].scopes"),
        ([{**GOOD, "name": "a b"}], "file.keys[0].name"),
        ([{**GOOD, "hash": "x"}], "never the key itself"),
        ([{**GOOD, "limits": {"requests_per_minute": 0}}], "limits.requests_per_minute"),
        ([{**GOOD, "limits": {"token_per_minute": 5}}], "Did you mean tokens_per_minute?"),
        ([{**GOOD, "limits": {"max_concurrent": "2"}}], "limits.max_concurrent"),
        ([{"name": "ana"}], "hash must be"),
        ([GOOD, GOOD], "2 are named 'ana'"),
        ([], "there is none"),
        (None, "there is none"),
        ({"ana": GOOD}, "file.keys"),
        ([{**GOOD, "name": f"n{index}"} for index in range(1001)], "at most 1000"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: object, words: str
):
    path = tmp_path / "keys.yaml"
    path.write_text(yaml.safe_dump({"keys": keys}))
    assert main(["keys", "check", str(path)]) == 1
    assert words in capsys.readouterr().err


def test_a_good_file_is_listed_by_name_and_scope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "keys.yaml"
    path.write_text(yaml.safe_dump({"keys": [GOOD, {**GOOD, "name": "bob", "scopes": ["admin"]}]}))
    assert main(["keys", "check", str(path)]) == 0
    assert capsys.readouterr().out == "ana: infer\nbob: admin\n"
    assert main(["keys", "check", str(tmp_path / "absent")]) == 1


@pytest.mark.parametrize("raw", [b"", b"keys", b"\xff\xfe\x00", b"[" * 5000, b"x" * 1_048_577])
def test_what_is_no_keys_file_is_refused_and_never_a_crash(raw: bytes):
    with pytest.raises(ConfigError):
        read_keys(raw)
