"""A peer's process: started once, asked many times, frozen while others are measured."""

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.parent_death import end_with_parent
from benchmarks.peers.environment import PeerAbsentError
from benchmarks.peers.runners.protocol import Description, Generation, Workload

_START_TIMEOUT_S = 600.0
_ANSWER_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 20.0


class PeerProcess:
    """One engine in a process of its own; between two questions it uses no CPU at all.

    It is stopped by signal rather than trusted to wait quietly: OpenMP pools spin and some
    engines poll, and either would slow down whoever is measured next.
    """

    def __init__(
        self, name: str, command: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> None:
        """Start the process; `wait_until_ready` must follow.

        Args:
            name: For messages.
            command: The runner's command line.
            variables: Added to this process's environment.
            log: File for everything the engine prints.
        """
        self._name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_inherited() | variables,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def wait_until_ready(self) -> Description:
        """Return what the engine says of itself once it is loaded, and freeze it.

        Raises:
            PeerAbsentError: It ended or stayed silent.
        """
        description = Description(**self._read(_START_TIMEOUT_S))
        self._signal(signal.SIGSTOP)
        return description

    def generate(self, workload: Workload) -> Generation:
        """Wake the engine, have it serve the workload, freeze it again.

        Raises:
            PeerAbsentError: It failed, ended, or emitted another number of tokens than asked.
        """
        self._signal(signal.SIGCONT)
        try:
            self._write(asdict(workload))
            generation = Generation(**self._read(_ANSWER_TIMEOUT_S))
        finally:
            self._signal(signal.SIGSTOP)
        lengths = {len(ids) for ids in generation.token_ids}
        if len(generation.token_ids) != len(workload.prompts) or lengths != {workload.new_tokens}:
            raise PeerAbsentError(
                f"{self._name} answered {len(generation.token_ids)} of {len(workload.prompts)} "
                f"requests with {sorted(lengths)} tokens instead of {workload.new_tokens}"
            )
        return generation

    @property
    def process_id(self) -> int:
        """Of the engine's first process, which is also the id of its group."""
        return self._process.pid

    def is_frozen(self) -> bool:
        """Whether the kernel holds the process stopped."""
        stat = Path(f"/proc/{self.process_id}/stat").read_text(encoding="ascii")
        # The state follows the name, which stands in brackets and may hold anything.
        return stat.rpartition(") ")[2].startswith("T")

    def stop(self) -> None:
        """End the process and everything it started."""
        self._signal(signal.SIGCONT)
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process_id, number)

    def _write(self, content: dict[str, Any]) -> None:
        if self._process.stdin is None:
            raise PeerAbsentError(f"{self._name} has no input")
        try:
            self._process.stdin.write(json.dumps(content).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerAbsentError(f"{self._name} is gone: {self._last_words()}") from error

    def _read(self, timeout_s: float) -> dict[str, Any]:
        output = self._process.stdout
        if output is None or not select.select([output], [], [], timeout_s)[0]:
            raise PeerAbsentError(f"{self._name} said nothing for {timeout_s:.0f} s")
        line = output.readline()
        if not line:
            raise PeerAbsentError(f"{self._name} ended: {self._last_words()}")
        content: dict[str, Any] = json.loads(line)
        if "error" in content:
            raise PeerAbsentError(f"{self._name} failed: {content['error']}")
        return content

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'without a word'} (all of it: {self._log})"


def _inherited() -> dict[str, str]:
    """Return this process's environment without what tunes threads: each engine brings its own."""
    tuning = ("OMP_", "GOMP_", "KMP_", "MKL_")
    return {name: value for name, value in os.environ.items() if not name.startswith(tuning)}
