"""Say that the port a Serve configuration asks for is taken, before Ray is started for nothing."""

import errno
import socket
import sys
from pathlib import Path

import yaml

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 8000


def busy_port(config_path: Path) -> int | None:
    """Return the configured HTTP port where something listens on it already, else None."""
    options = (yaml.safe_load(config_path.read_text()) or {}).get("http_options") or {}
    host, port = options.get("host", DEFAULT_HOST), options.get("port", DEFAULT_PORT)
    with socket.socket() as probe:
        # As a server binds: connections that only linger from an earlier one do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return port
    return None


if __name__ == "__main__":
    path = Path(sys.argv[1])
    port = busy_port(path)
    if port is not None:
        sys.exit(
            f"port {port} is in use, so nothing was started; stop what listens there, "
            f"or set another http_options.port in {path}"
        )
