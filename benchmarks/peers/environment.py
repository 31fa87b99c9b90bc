"""A peer's own virtual environment: made once, in the cache folder, and used again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from dflash.cache_folder import exclusive

_MARK = "installed.json"


class Guest(Protocol):
    """Whatever is installed apart from us."""

    @property
    def name(self) -> str:
        """The folder of its environment."""
        ...

    @property
    def requirements(self) -> tuple[str, ...]:
        """Pinned distributions; none means the project's own environment."""
        ...

    @property
    def removed(self) -> tuple[str, ...]:
        """Distributions that these bring and that break it."""
        ...


class PeerAbsentError(Exception):
    """A peer cannot be installed or does not start. One text argument: the reason."""


def python_of(peer: Guest, folder: Path) -> Path:
    """Return the Python that runs the peer, installing its environment where that is due.

    Args:
        peer: Whose environment.
        folder: Where environments lie, one subfolder a peer.

    Raises:
        PeerAbsentError: The installation failed; the message holds its last words.
    """
    if not peer.requirements:
        return Path(sys.executable)
    home = folder / peer.name
    home.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / f"{peer.name}.lock", lambda holder: print(f"waiting for {holder}")):
        if not _is_installed(peer, home):
            _install(peer, home)
    return home / "bin" / "python"


def _contents(peer: Guest) -> dict[str, list[str]]:
    return {
        "requirements": list(peer.requirements),
        "removed": list(peer.removed),
        "python": [str(part) for part in sys.version_info[:2]],
    }


def _is_installed(peer: Guest, home: Path) -> bool:
    try:
        return json.loads((home / _MARK).read_text(encoding="utf-8")) == _contents(peer)
    except (OSError, ValueError):
        return False


def _install(peer: Guest, home: Path) -> None:
    print(f"installing {' '.join(peer.requirements)} into {home} (once)", file=sys.stderr)
    python = str(home / "bin" / "python")
    _run(sys.executable, "-m", "venv", "--clear", str(home))
    _run(python, "-m", "pip", "install", "--quiet", *peer.requirements)
    if peer.removed:
        _run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *peer.removed)
    # Written last: an installation that was cut off is begun again.
    (home / _MARK).write_text(json.dumps(_contents(peer)), encoding="utf-8")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise PeerAbsentError(
            f"`{' '.join(command[1:])}` failed: {words[-1] if words else done.returncode}"
        )
