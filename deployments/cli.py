"""`dflashctl`: one command, a verb for each thing that people do from a shell."""

import importlib
import sys
from collections.abc import Sequence

# Verb, the module whose `main(argv)` answers it, and what it does.
_VERBS = {
    "train": ("dflash.train.__main__", "train a drafter for your own target"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Hand the arguments to the verb's own module and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(_usage())
        return 0
    if not arguments or arguments[0] not in _VERBS:
        found = f"{arguments[0]!r} is no verb" if arguments else "a verb is missing"
        sys.stderr.write(f"dflashctl: {found}\n{_usage()}")
        return 2
    module, _ = _VERBS[arguments[0]]
    return importlib.import_module(module).main(arguments[1:])


def _usage() -> str:
    lines = [f"  {verb:<10}{help_text}" for verb, (_, help_text) in _VERBS.items()]
    return "\n".join(["usage: dflashctl VERB [--help]", "", *lines, ""])
