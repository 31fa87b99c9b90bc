"""A served fake engine that asks for keys, with a keys file that a test may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployments.guard.guard import Guard
from deployments.guard.keys import hash_of, new_key
from deployments.guard.settings import GuardSettings, RequestBounds
from tests.rigs.http_server import FakeServer, serving


@dataclass
class KeyedServer:
    """A running server and the keys that it knows.

    Attributes:
        server: The server.
        file: Its keys file.
        keys: The keys themselves, by name.
    """

    server: FakeServer
    file: Path
    keys: dict[str, str]

    def bearer(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name]}"}


def entry(name: str, key: str, *scopes: str, **limits: int) -> dict[str, Any]:
    """Return a key as the file has it."""
    return {"name": name, "hash": hash_of(key), "scopes": list(scopes), "limits": limits}


def write_keys(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump({"keys": list(entries)}), encoding="utf-8")


@contextmanager
def serving_with_keys(
    folder: Path, scopes: dict[str, tuple[str, ...]], bounds: RequestBounds | None = None
) -> Iterator[KeyedServer]:
    """Serve with one key a name; its scopes and, after them, limits as ``key=number``."""
    file, keys, entries = folder / "keys.yaml", {}, []
    for name, words in scopes.items():
        keys[name] = new_key()
        limits = dict(word.split("=") for word in words if "=" in word)
        entries.append(
            entry(
                name,
                keys[name],
                *(word for word in words if "=" not in word),
                **{limit: int(value) for limit, value in limits.items()},
            )
        )
    write_keys(file, *entries)
    guard = Guard(GuardSettings(str(file), bounds or RequestBounds()))
    with serving(guard=guard) as server:
        yield KeyedServer(server, file, keys)
