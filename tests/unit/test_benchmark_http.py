"""Measuring through HTTP: answers are counted by the server and complete, growth is a slope."""

import argparse
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.http import __main__ as command
from benchmarks.http.client import AnswerError, ChatClient, num_tokens_of
from benchmarks.http.edge import Edge
from benchmarks.http.processes import MARK_VARIABLE, ClusterProcesses, Footprint
from benchmarks.http.rounds import Comparison, percentile
from benchmarks.http.server import DEFAULT, FAST, Server
from benchmarks.http.soak import Soak, slope
from benchmarks.http.summary import ModeResult, result_from_modes
from benchmarks.peers.runners.protocol import Description
from benchmarks.peers.samples import Load

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":7}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunked(*parts: bytes) -> bytes:
    framed = (f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(framed) + b"0\r\n\r\n"


def test_tokens_are_those_the_server_counted_however_the_stream_is_framed():
    assert num_tokens_of(HEAD + b"\r\n" + TEXT + USAGE + DONE) == 7
    assert num_tokens_of(chunked(TEXT, USAGE, DONE)) == 7
    # A proxy may cut a frame anywhere.
    assert num_tokens_of(chunked(TEXT + USAGE[:20], USAGE[20:], DONE)) == 7


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"HTTP/1.1 429 Too Many Requests\r\n\r\nqueue full", "429 Too Many Requests: queue full"),
        (chunked(TEXT, USAGE), "no end"),
        (chunked(DONE), "no end"),
        (b"", ": "),
    ],
)
def test_a_refusal_or_a_stream_without_its_end_is_no_answer(response: bytes, words: str):
    with pytest.raises(AnswerError, match=words):
        num_tokens_of(response)


class ScriptedServer:
    """Answers each request with one stream and counts how many it holds at once."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        self.most_at_once = 0
        self.port = 0
        self._now = 0
        self._is_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._is_up.wait()

    def _run(self) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._is_up.set()
            await self._stop.wait()
            server.close()

        self._loop.run_until_complete(main())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        self.bodies.append(json.loads(await reader.readexactly(size)))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        await asyncio.sleep(0.02)
        writer.write(chunked(ROLE, TEXT, USAGE, DONE))
        await writer.drain()
        self._now -= 1
        writer.close()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    yield scripted
    scripted.stop()


def test_the_client_asks_for_greedy_streams_of_a_fixed_length_so_many_at_a_time(
    server: ScriptedServer,
):
    visit = ChatClient(server.port, "a-model").visit([f"q{i}" for i in range(7)], 3, 7)

    assert server.most_at_once == 3
    assert [answer.num_tokens for answer in visit.answers] == [7] * 7
    assert all(0 < answer.ttft_s < visit.seconds for answer in visit.answers)
    assert visit.tok_s == pytest.approx(49 / visit.seconds)
    body = server.bodies[0]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("a-model", 7, 0)
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_processes_are_found_by_the_mark_they_inherit_and_can_be_frozen():
    script = "import subprocess, sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={MARK_VARIABLE: "this-test"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = ClusterProcesses("this-test", "subprocess, sys")

        assert found.ids() == [process.pid]
        footprint = found.footprint()
        assert footprint.replica_gib == footprint.cluster_gib > 0
        # It has imported a module, which takes more than a tick of the clock.
        assert 0 < found.cpu_s() < 60
        assert ClusterProcesses("another-test", "sys").cpu_s() == 0
        assert ClusterProcesses("this-test", "another title").footprint().replica_gib == 0
        assert ClusterProcesses("another-test", "sys").ids() == []
        with found.frozen():
            assert "T" in states_seen(process.pid, until="T")
        assert "S" in states_seen(process.pid, until="S")
        found.kill()
        assert process.wait(10) == -9


def states_seen(process_id: int, until: str) -> set[str]:
    seen: set[str] = set()
    for _ in range(1000):
        seen.add(Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][0])
        if until in seen:
            break
        threading.Event().wait(0.01)
    return seen


def test_the_server_under_test_is_the_shipped_one_on_another_port_with_one_engine(tmp_path: Path):
    server = Server(DEFAULT, tmp_path)
    written = (tmp_path / "serve_default.yaml").read_text()
    assert f"port: {server.port}" in written
    assert "autoscaling_config" not in written
    assert "max_ongoing_requests" in written
    assert server.port != 8000


def test_growth_is_the_slope_after_the_warm_up():
    assert slope([0, 1, 2], [5, 7, 9]) == pytest.approx(2)
    flat = Soak((500, 1000, 1500, 2000, 2500), (0.1, 1.0, 1.0, 1.0, 1.0))
    assert flat.growth_mib_per_1000 == pytest.approx(0)
    leaking = Soak((500, 1000, 1500, 2000, 2500), (0.1, 1.0, 1.5, 2.0, 2.5))
    assert leaking.growth_mib_per_1000 == pytest.approx(1024)


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (0.0, 1.0)]
)
def test_a_percentile_is_one_of_the_values(fraction: float, expected: float):
    assert percentile([4.0, 1.0, 3.0, 2.0], fraction) == expected


def test_figures_carry_the_names_that_others_compare():
    fast = Comparison(8, (100.0, 300.0), 180.0, (0.010, 0.020, 0.030), 0.1)
    default = Comparison(8, (100.0, 100.0), 60.0, (0.5,), 0.1)
    result = result_from_modes(
        [Load(8, 8, 32)],
        {
            FAST: ModeResult((fast,), Footprint(1.5, 2.5), None),
            DEFAULT: ModeResult((default,), Footprint(1.4, 2.0), None),
        },
        Description("1.0", "bfloat16", 2, "bitwise"),
        Edge(
            (140.0, 100.0, 120.0),
            (0.004, 0.006, 0.005),
            tuple(n / 1000 for n in range(1, 100)),
            0.2,
        ),
    )
    assert result.figures == pytest.approx(
        {
            "rate_over_in_process_at_8": 0.9,
            "rate_over_in_process_default_at_8": 0.6,
            "ttft_p50_ms": 20.0,
            "ttft_p99_ms": 30.0,
            "resident_gib": 1.5,
            "resident_all_processes_gib": 2.5,
            "edge_cpu_us_per_token_at_32": 120.0,
            "policy_p99_ms_at_32": 99.0,
            "ttft_added_ms_at_1": 5.0,
        }
    )


def test_a_soak_too_short_to_show_growth_is_refused():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert parser.parse_args(["--soak", "0"]).soak == 0
    assert parser.parse_args(["--soak", "200"]).soak == 200
    with pytest.raises(SystemExit):
        parser.parse_args(["--soak", "10"])
