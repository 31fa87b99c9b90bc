"""`dflashctl status`: the status page in a terminal."""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from deployments.status_text import status_text

_PATIENCE_S = 5.0
_PAUSE_S = 1.0
_NUM_DECISIONS = 200
# Without a terminal nobody says how wide the text may be.
_PLAIN_COLUMNS = 160


class _NoAnswerError(Exception):
    """The server does not answer, or refuses; the message says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the state of all replicas; return 0 where all is well, 1 where somebody should look."""
    parser = argparse.ArgumentParser(prog="dflashctl status", description=__doc__)
    parser.add_argument("--url", default="http://localhost:8000", help="where the server answers")
    parser.add_argument("--watch", action="store_true", help="go on until Ctrl-C")
    parser.add_argument(
        "--key-env", metavar="NAME", help="environment variable with a key of scope status"
    )
    arguments = parser.parse_args(argv)
    key = os.environ.get(arguments.key_env, "") if arguments.key_env else ""
    if arguments.key_env and not key:
        sys.stderr.write(f"{arguments.key_env} is not set; give the variable that has the key\n")
        return 2
    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _PLAIN_COLUMNS, highlight=False)
    if arguments.watch:
        return _watched(console, arguments.url, key)
    shown, code = _looked(arguments.url, key)
    console.print(shown)
    return code


def _watched(console: Console, url: str, key: str) -> int:
    """Show the state anew each second; return the code of the last one."""
    code = 1
    try:
        # Where there is no terminal, each state is printed below the one before.
        with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                shown, code = _looked(url, key)
                if console.is_terminal:
                    live.update(shown, refresh=True)
                else:
                    console.print(shown)
                time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        return code


def _looked(url: str, key: str) -> tuple[RenderableType, int]:
    """Return what to show, and the exit code that says the same."""
    try:
        policy = _asked(f"{url.rstrip('/')}/policy", key)
        path = f"/policy/decisions?limit={_NUM_DECISIONS}"
        decisions = _asked(url.rstrip("/") + path, key)["decisions"]
    except _NoAnswerError as error:
        return f"{url}: {error}", 1
    return status_text(policy, decisions), 0 if policy["is_well"] else 1


def _asked(url: str, key: str) -> dict[str, Any]:
    """Return a JSON answer.

    Raises:
        _NoAnswerError: There is none.
    """
    if not url.startswith(("http://", "https://")):
        raise _NoAnswerError("no such address; give one such as http://localhost:8000")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _NoAnswerError(_refusal(error)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise _NoAnswerError(f"no answer ({reason}); is the server there?") from error


def _refusal(error: urllib.error.HTTPError) -> str:
    try:
        message = json.load(error)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = "that is no answer of this server"
    hint = "; name a variable with a key by --key-env" if error.code == 401 else ""
    return f"status {error.code}: {message}{hint}"
