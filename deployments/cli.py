"""`dflashctl`: one command, a verb for each thing that people do from a shell."""

import importlib
import os
import sys
from collections.abc import Sequence

# Verb, the module whose `main(argv)` answers it, and what it does.
_VERBS = {
    "check": ("deployments.check", "check a configuration, and say what it will need"),
    "explain": ("deployments.explain", "say what the policy changed, when and why"),
    "keys": ("deployments.guard.keys_verb", "draw API keys, and check a file of them"),
    "replay": ("deployments.replay", "make recorded decisions again and compare them"),
    "status": ("deployments.status_verb", "show what every replica runs, why, and what it brings"),
    "train": ("dflash.train.__main__", "train a drafter for your own target"),
}

# As a shell counts a command that its reader left.
_SIGPIPE_CODE = 141


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
    try:
        code = importlib.import_module(module).main(arguments[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough, as with `| head`. What is left to print has no reader, and
        # the interpreter would complain of that on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SIGPIPE_CODE
    return code


def _usage() -> str:
    lines = [f"  {verb:<10}{help_text}" for verb, (_, help_text) in _VERBS.items()]
    return "\n".join(["usage: dflashctl VERB [--help]", "", *lines, ""])
