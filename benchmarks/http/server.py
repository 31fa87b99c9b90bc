"""One Ray Serve of our own: a local cluster nobody else uses, in one of Ray's two modes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.http.processes import MARK_VARIABLE, ClusterProcesses
from benchmarks.parent_death import end_with_parent

_REPOSITORY = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 240.0
_STOP_TIMEOUT_S = 60.0


class ServerError(Exception):
    """The server did not start. One text argument."""


@dataclass(frozen=True, slots=True, eq=False)
class Mode:
    """How Ray Serve moves requests. Two modes are equal where they are the same object.

    Attributes:
        name: For people.
        suffix: Of figure names.
        variables: Environment of the whole cluster.
    """

    name: str
    suffix: str
    variables: Mapping[str, str]


FAST = Mode(
    name="fast mode",
    suffix="",
    variables={
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # A stopped replica would otherwise drain for half a minute.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    },
)
DEFAULT = Mode(name="default mode", suffix="_default", variables={})


class Server:
    """`serve run` with the shipped configuration or another, on a free port, with one replica."""

    def __init__(
        self,
        mode: Mode,
        folder: Path,
        config: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> None:
        """Prepare.

        Args:
            mode: Of Ray Serve.
            folder: For the configuration and the log.
            config: The configuration; None is the shipped one.
            model: Name of its model, where its arguments have none.
        """
        shipped = config or yaml.safe_load(
            (_REPOSITORY / "serve_config.yaml").read_text(encoding="utf-8")
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        self.model: str = model or shipped["applications"][0]["args"]["model_name"]
        self._mode = mode
        self._log = folder / f"serve{mode.suffix}.log"
        self._config = folder / f"serve{mode.suffix}.yaml"
        self._config.write_text(yaml.safe_dump(_alone(shipped, self.port)), encoding="utf-8")
        self._mark = uuid.uuid4().hex
        self.processes = ClusterProcesses(self._mark, "ServeReplica:dflash:Engine")

    def __enter__(self) -> "Server":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("serve")),
                    *("run", str(self._config), "--address", "local"),
                ],
                cwd=_REPOSITORY,
                env={**os.environ, **self._mode.variables, MARK_VARIABLE: self._mark},
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        self.processes.kill()
        self._process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if _answers(f"http://127.0.0.1:{self.port}/readyz"):
                return
            time.sleep(0.5)
        raise ServerError(
            f"Ray Serve in {self._mode.name} was not ready in {_START_TIMEOUT_S:.0f} s or ended; "
            f"read {self._log}"
        )


def _alone(shipped: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return the shipped configuration on another port, with one engine that stays one."""
    options = {**shipped["http_options"], "host": "127.0.0.1", "port": port}
    application = dict(shipped["applications"][0])
    application["deployments"] = [
        {key: value for key, value in deployment.items() if key != "autoscaling_config"}
        for deployment in application["deployments"]
    ]
    return {**shipped, "http_options": options, "applications": [application]}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError):
        return False
