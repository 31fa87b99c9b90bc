"""`serve run` as people run it, in a process of its own, with a home of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).parents[2]
FAST_MODE = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # Shutting down waits this long for clients; the default is half a minute.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
}


@dataclass
class ServeProcess:
    """A running `serve run`.

    Attributes:
        base_url: Where it answers.
        folder: Its configuration and log lie there.
        startup: What a path answered, in order, until it was ready.
    """

    base_url: str
    folder: Path
    environment: dict[str, str]
    startup: list[httpx.Response] = field(default_factory=list)

    @property
    def log(self) -> str:
        return (self.folder / "serve.log").read_text(encoding="utf-8", errors="replace")

    def deploy(self, config: dict[str, Any]) -> None:
        """Change the running applications, as `serve deploy` does."""
        found = re.search(r"dashboard at \S*?(127\.0\.0\.1:\d+)", self.log)
        if found is None:
            raise RuntimeError(f"no dashboard address in the log:\n{self.log[-2000:]}")
        path = self.folder / "changed.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        command = [*_SERVE, "deploy", "-a", f"http://{found[1]}", str(path)]
        subprocess.run(
            command, cwd=ROOT, env=self.environment, check=True, capture_output=True, timeout=60
        )


_SERVE = [sys.executable, "-m", "ray.serve.scripts"]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serve_run(
    config: dict[str, Any],
    folder: Path,
    *,
    environment: dict[str, str],
    ready_paths: tuple[str, ...] = ("/readyz",),
    limit_s: float = 120.0,
) -> Iterator[ServeProcess]:
    """Run a configuration until the block ends.

    Args:
        config: As in `serve_config.yaml`; its port is replaced by a free one.
        folder: For the configuration, the log and the process's home.
        environment: Variables besides the usual ones.
        ready_paths: All of these must answer 200 before the block starts.
        limit_s: How long that may take.
    """
    config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
    (folder / "serve.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    variables = {
        **os.environ,
        "HOME": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        # In fast mode a proxy of another kind listens on these too, for whoever has none of them.
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        **environment,
    }
    base_url = f"http://127.0.0.1:{config['http_options']['port']}"
    running = ServeProcess(base_url, folder, variables)
    with (folder / "serve.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*_SERVE, "run", str(folder / "serve.yaml")],
            cwd=ROOT,
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_ready(running, process, ready_paths, limit_s)
        yield running
    finally:
        # What Ctrl-C sends; Serve then stops its replicas and Ray.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        _end_leftovers(folder)


def _end_leftovers(home: Path) -> None:
    """End what this run started and left behind: the fast proxy's reloads outlive their parents."""
    mark = f"HOME={home}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        # Processes end while one looks, and others' cannot be read.
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def _wait_until_ready(
    running: ServeProcess, process: subprocess.Popen, paths: tuple[str, ...], limit_s: float
) -> None:
    deadline_s = time.monotonic() + limit_s
    missing = list(paths)
    while missing:
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"serve run did not become ready:\n{running.log[-4000:]}")
        time.sleep(0.1)
        try:
            answer = httpx.get(running.base_url + missing[0], timeout=5)
        except httpx.TransportError:
            continue
        running.startup.append(answer)
        if answer.status_code == 200:
            missing.pop(0)
