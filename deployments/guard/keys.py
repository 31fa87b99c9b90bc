"""API keys: what the keys file says of each, and which of them a client has shown."""

import hmac
import re
import secrets
from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import yaml

from deployments.guard.scopes import KeyScope
from deployments.strict import Problem, joined, problems_in, value_from
from dflash.errors import ConfigError

MAX_KEYS = 1000
MAX_FILE_BYTES = 1024 * 1024
# Of a key that somebody brings: one that can be guessed is not safe behind a fast hash.
MIN_KEY_CHARACTERS = 32
MAX_KEY_CHARACTERS = 512
_MAX_LIMIT = 1_000_000_000
# Tells people, and scanners of public code, what the letters are.
_KEY_PREFIX = "dfs_"
_SALT_BYTES = 16
# What messages call the whole file.
_ROOT = "file"
_HASH = re.compile(r"blake2b:(?P<salt>[0-9a-f]{32}):(?P<digest>[0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_KEY = re.compile(rf"[\x21-\x7e]{{{MIN_KEY_CHARACTERS},{MAX_KEY_CHARACTERS}}}")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may use of one ingress replica; None where nothing bounds it.

    Attributes:
        requests_per_minute: Requests that generate or count tokens.
        tokens_per_minute: Prompt tokens and generated ones together.
        max_concurrent: Such requests at once, streamed or not.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        for key in ("requests_per_minute", "tokens_per_minute", "max_concurrent"):
            value = getattr(self, key)
            if value is not None and not 1 <= value <= _MAX_LIMIT:
                raise ConfigError(
                    f"limits.{key} must be in [1, {_MAX_LIMIT}], got {value}; "
                    "leave it out for no limit"
                )


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as the file has it: never the key itself.

    Attributes:
        name: What logs and messages call it.
        hash: ``blake2b:SALT:DIGEST`` in hexadecimal digits.
        scopes: What it may do.
        limits: How much.
    """

    name: str = ""
    hash: str = field(default="", repr=False)
    scopes: tuple[KeyScope, ...] = ()
    limits: KeyLimits = field(default_factory=KeyLimits)

    def __post_init__(self) -> None:
        require_name(self.name)
        if not _HASH.fullmatch(self.hash):
            raise ConfigError(
                "hash must be what `dflashctl keys new` printed for the file, never the key itself"
            )
        if not self.scopes:
            raise ConfigError(f"scopes is empty; say which of {', '.join(KeyScope)}")

    def may(self, scope: KeyScope) -> bool:
        """Return whether it may do this; ``admin`` may do everything."""
        return scope in self.scopes or KeyScope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True)
class _KeysFile:
    """The whole of a keys file."""

    keys: tuple[ApiKey, ...] = ()


class KeyRing:
    """All keys in force."""

    def __init__(self, keys: tuple[ApiKey, ...] = ()) -> None:
        found = [_HASH.fullmatch(key.hash) for key in keys]
        self._entries = [
            (bytes.fromhex(match["salt"]), bytes.fromhex(match["digest"]), key)
            for match, key in zip(found, keys, strict=True)
            if match is not None
        ]

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, presented: bytes) -> ApiKey | None:
        """Return the key that this is; None where it is none of them.

        Every entry is compared, and each in constant time: how long it takes says nothing of
        which key it is, nor of how much of it is right.
        """
        found = None
        for salt, digest, key in self._entries:
            if hmac.compare_digest(_digest(salt, presented), digest):
                found = key
        return found


def new_key() -> str:
    """Return a new random key, of 256 bits."""
    return _KEY_PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """Return what the file holds of a key.

    A fast hash is right for keys: they are long and random, so nobody finds one by trying, and a
    slow hash, made for passwords, would cost every request what it should cost an attacker. The
    salt keeps equal keys in two files from looking equal.

    Raises:
        ConfigError: It is too short to be safe behind a fast hash, or no header can carry it.
    """
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"a key has {MIN_KEY_CHARACTERS} to {MAX_KEY_CHARACTERS} characters of ASCII without "
            "spaces, and they should be random; leave it to `dflashctl keys new` to draw one"
        )
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"blake2b:{salt.hex()}:{_digest(salt, key.encode()).hex()}"


def require_name(name: str) -> None:
    """Refuse what is no name of a key.

    Raises:
        ConfigError: It has other characters, too many of them, or none.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError("name must be 1 to 64 letters, digits, '.', '_', '@' or '-'")


def read_keys(raw: bytes) -> tuple[ApiKey, ...]:
    """Return the keys of a keys file.

    Raises:
        ConfigError: It cannot be used; the message has all problems, and nothing that stands in
            the file but known fields and names of keys: what is wrong may well be a key.
    """
    value = _parsed(raw)
    if value == {"keys": None}:
        # A file that was begun, and has no key yet.
        value = {"keys": []}
    problems = [_without_content(each) for each in problems_in(_KeysFile, value, (_ROOT,))]
    if problems:
        raise ConfigError(joined(problems))
    keys: tuple[ApiKey, ...] = value_from(_KeysFile, value).keys
    if not keys:
        raise ConfigError(
            "keys: there is none; `dflashctl keys new` draws one, and without args.keys_file no "
            "key is asked for"
        )
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"keys: there are {len(keys)}; at most {MAX_KEYS} are compared")
    counts = Counter(key.name for key in keys)
    for name, count in counts.items():
        if count > 1:
            raise ConfigError(f"keys: {count} are named {name!r}; give each a name of its own")
    return keys


def _parsed(raw: bytes) -> Any:
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"the file is over {MAX_FILE_BYTES} bytes")
    try:
        return yaml.safe_load(raw)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" from line {mark.line + 1} on"
        # Without its cause, whose text quotes the file.
        raise ConfigError(f"the file is not YAML{place}") from None


def _without_content(problem: Problem) -> Problem:
    known = {_ROOT, *_KeysFile.__slots__, *ApiKey.__slots__, *KeyLimits.__slots__}
    path = tuple(part if isinstance(part, int) or part in known else "..." for part in problem.path)
    return replace(problem, path=path, value=None)


def _digest(salt: bytes, key: bytes) -> bytes:
    return blake2b(key, key=salt, digest_size=32).digest()
