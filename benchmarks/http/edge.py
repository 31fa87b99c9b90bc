"""What the edge itself costs: Ray Serve's fast mode over an engine that only says its script."""

import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.http.client import ChatClient
from benchmarks.http.server import FAST, Server
from benchmarks.report import progress
from tests.rigs.fake_app import MODEL

TOKENS_A_MESSAGE = 4
_STREAMS = 32
_NEW_TOKENS = 160
# A step of a busy engine. Half a core of the edge at its aim leaves the other half to the client.
_STEP_S = 0.04
# Several operators who watch, and the page of each.
_POLICY_PAUSE_S = 0.05
_US_PER_S, _MS_PER_S = 1e6, 1e3
_SCRIPTED: Mapping[str, Any] = {
    "proxy_location": "HeadOnly",
    "http_options": {},
    "applications": [
        {
            "name": "dflash",
            "route_prefix": "/",
            "import_path": "tests.rigs.fake_app:build",
            "args": {"step_s": _STEP_S, "tokens_per_step": TOKENS_A_MESSAGE},
            "deployments": [
                {
                    "name": "Ingress",
                    "max_ongoing_requests": 1000,
                    "ray_actor_options": {"num_cpus": 0.1},
                },
                {
                    "name": "Engine",
                    "max_ongoing_requests": 384,
                    "ray_actor_options": {"num_cpus": 0.1},
                },
            ],
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Edge:
    """What was measured.

    Attributes:
        cpu_us_per_token: CPU of every process but the client per output token at 32 streams, less
            what they take when nothing is asked; one value a round. The script is in it, which
            does next to nothing.
        ttft_s: From sending a request to its first text where nothing else runs, and the engine
            answers at once.
        policy_s: Of each answer of `/policy` that was asked for while 32 streams ran.
        idle_cores: What those processes take when nothing is asked.
    """

    cpu_us_per_token: tuple[float, ...]
    ttft_s: tuple[float, ...]
    policy_s: tuple[float, ...]
    idle_cores: float

    @property
    def figures(self) -> dict[str, float]:
        """The names that others compare."""
        return {
            "edge_cpu_us_per_token_at_32": statistics.median(self.cpu_us_per_token),
            "ttft_added_ms_at_1": statistics.median(self.ttft_s) * _MS_PER_S,
            "policy_p99_ms_at_32": statistics.quantiles(self.policy_s, n=100)[-1] * _MS_PER_S,
        }


def measure_edge(folder: Path, num_rounds: int) -> Edge:
    """Serve the script, and measure.

    Args:
        folder: For the configuration and the log.
        num_rounds: Rounds of 32 streams.

    Raises:
        AnswerError: The server failed a request.
        ServerError: It did not start.
    """
    with Server(FAST, folder, _SCRIPTED, MODEL) as server:
        client, processes = ChatClient(server.port, MODEL), server.processes
        texts = [f"question {index}" for index in range(_STREAMS)]
        client.visit(texts, _STREAMS, _NEW_TOKENS)
        before_s, since = processes.cpu_s(), time.perf_counter()
        time.sleep(2 * num_rounds)
        idle_cores = (processes.cpu_s() - before_s) / (time.perf_counter() - since)
        cpu_us: list[float] = []
        ttft_s: list[float] = []
        policy_s: list[float] = []
        with progress(num_rounds, "edge") as bar:
            for _ in range(num_rounds):
                before_s = processes.cpu_s()
                visit = client.visit(texts, _STREAMS, _NEW_TOKENS)
                used_s = processes.cpu_s() - before_s - idle_cores * visit.seconds
                cpu_us.append(used_s * _US_PER_S / (_STREAMS * _NEW_TOKENS))
                for text in texts[:8]:
                    # The script pauses after a step, and would keep the next request waiting.
                    time.sleep(2 * _STEP_S)
                    (answer,) = client.visit([text], 1, TOKENS_A_MESSAGE).answers
                    ttft_s.append(answer.ttft_s)
                policy_s += _watched(client, texts)
                bar.update()
        return Edge(tuple(cpu_us), tuple(ttft_s), tuple(policy_s), idle_cores)


def _watched(client: ChatClient, texts: Sequence[str]) -> list[float]:
    """Return how long each answer of `/policy` took while all streams ran, seconds."""
    took_s: list[float] = []
    with ThreadPoolExecutor(max_workers=1) as pool:
        visit = pool.submit(client.visit, texts, _STREAMS, _NEW_TOKENS)
        while not visit.done():
            time.sleep(_POLICY_PAUSE_S)
            asked = time.perf_counter()
            with urlopen(f"http://127.0.0.1:{client.port}/policy") as answer:
                answer.read()
            took_s.append(time.perf_counter() - asked)
        visit.result()
    return took_s
