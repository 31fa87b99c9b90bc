"""`dflashctl keys`: draw a key, hash one of your own, check a keys file."""

import argparse
import getpass
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from deployments.guard.keys import MAX_FILE_BYTES, hash_of, new_key, read_keys, require_name
from deployments.guard.scopes import KeyScope
from dflash.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    """Answer `keys new` and `keys check`; return 1 where something cannot work."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.verb == "new":
            _new(arguments.name, arguments.scopes, is_own=arguments.own)
        else:
            _check(arguments.file)
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"dflashctl keys: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dflashctl keys", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    new = verbs.add_parser(
        "new",
        help="draw a key",
        description="Shows a new key once, on standard error, and writes its line for the keys "
        "file, which has only a hash of it, to standard output.",
    )
    new.add_argument("name", help="what logs and messages call the key")
    new.add_argument(
        "--scopes",
        nargs="+",
        required=True,
        choices=[scope.value for scope in KeyScope],
        metavar="SCOPE",
        help=f"what it may do: {', '.join(KeyScope)}; admin includes the others",
    )
    new.add_argument(
        "--own",
        action="store_true",
        help="hash a key of yours instead; it is read from standard input, never from arguments, "
        "which other people of the machine can see",
    )
    check = verbs.add_parser("check", help="check a keys file and list its keys")
    check.add_argument("file", type=Path)
    return parser


def _new(name: str, scopes: list[str], *, is_own: bool) -> None:
    require_name(name)
    key = _own_key() if is_own else new_key()
    line = {"name": name, "hash": hash_of(key), "scopes": scopes}
    if not is_own:
        sys.stderr.write(f"{key}\nThis is the key of {name}; it is shown this once.\n")
    # JSON is YAML, too: it goes below `keys:` as it is.
    sys.stdout.write(f"  - {json.dumps(line)}\n")


def _own_key() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("the key: ")
    return sys.stdin.readline().rstrip("\r\n")


def _check(file: Path) -> None:
    with file.open("rb") as opened:
        keys = read_keys(opened.read(MAX_FILE_BYTES + 1))
    for key in keys:
        sys.stdout.write(f"{key.name}: {', '.join(key.scopes)}\n")
