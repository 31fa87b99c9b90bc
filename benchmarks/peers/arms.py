"""The engines of one run: started together, asked in turn, dropped with a reason when they fail."""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import usable_cpus
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.environment import PeerAbsentError, python_of
from benchmarks.peers.process import PeerProcess
from benchmarks.peers.runners.protocol import Description, Generation, Workload

_REPOSITORY = Path(__file__).resolve().parents[2]
_EVERY_ENGINE = {"TOKENIZERS_PARALLELISM": "false"}


class Arms:
    """Every engine that runs, and why each other one does not."""

    def __init__(self, home: Path, model_folder: Path, gguf: Path) -> None:
        """Prepare to start engines.

        Args:
            home: Where environments and logs lie.
            model_folder: The weights, as safetensors.
            gguf: The quantised file that those weights were made from.
        """
        self._home = home
        self._model_folder = model_folder
        self._gguf = gguf
        self._processes: dict[str, PeerProcess] = {}
        self._peers: dict[str, Peer] = {}
        self.descriptions: dict[str, Description] = {}
        self.absent: dict[str, str] = {}

    def __enter__(self) -> "Arms":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.stop()
        self._processes.clear()

    @property
    def running(self) -> list[Peer]:
        """The engines that still run, in the order they were asked for."""
        return [peer for name, peer in self._peers.items() if name in self._processes]

    def start(self, peers: Sequence[Peer]) -> None:
        """Install what is missing, then load all engines side by side."""
        self._peers = {peer.name: peer for peer in peers}
        for peer in peers:
            try:
                self._processes[peer.name] = self._launch(peer)
            except PeerAbsentError as error:
                self._drop(peer, error)
        for peer in self.running:
            try:
                self.descriptions[peer.name] = self._processes[peer.name].wait_until_ready()
            except PeerAbsentError as error:
                self._drop(peer, error)

    def generate(self, peer: Peer, workload: Workload) -> Generation | None:
        """Have one engine serve the workload; None where it failed, now or earlier."""
        process = self._processes.get(peer.name)
        if process is None:
            return None
        try:
            return process.generate(workload)
        except PeerAbsentError as error:
            self._drop(peer, error)
            return None

    def _launch(self, peer: Peer) -> PeerProcess:
        python = python_of(peer, self._home)
        model = self._gguf if peer.reads_gguf else self._model_folder
        module = f"benchmarks.peers.runners.{peer.runner}"
        return PeerProcess(
            name=peer.name,
            command=[str(python), "-m", module, "--model", str(model), *peer.arguments],
            variables={
                **_EVERY_ENGINE,
                "PYTHONPATH": str(_REPOSITORY),
                **peer.variables(self._home / peer.name, usable_cpus()),
            },
            log=self._home / "logs" / f"{peer.figure}.log",
        )

    def _drop(self, peer: Peer, error: PeerAbsentError) -> None:
        print(f"{peer.name} is absent: {error}", file=sys.stderr)
        self.absent[peer.name] = str(error)
        process = self._processes.pop(peer.name, None)
        if process is not None:
            process.stop()
