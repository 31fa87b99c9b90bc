"""A schema compiled for trial by a process that can be ended: nothing else bounds what one takes.

Run as a program: it reads a job, compiles, and writes what is wrong with the schema. The library
bounds its steps, but a short schema can make one step take hours or all memory.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

MAX_SECONDS: Final = 3.0
_MAX_BYTES = 1024 * 1024 * 1024
_END = 256


def problem_of(schema: str, limits: Mapping[str, int]) -> str | None:
    """Return why a JSON Schema cannot be compiled within bounds; None where it can.

    Args:
        schema: As JSON, with the library's options in it.
        limits: Of the library's parser.
    """
    job = json.dumps({"schema": schema, "limits": dict(limits)})
    try:
        # `-P` keeps this folder's names from standing in for those of the standard library.
        done = subprocess.run(
            [sys.executable, "-P", str(Path(__file__))],
            input=job,
            text=True,
            capture_output=True,
            timeout=MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (
            f"it takes over {MAX_SECONDS:g} s to compile; use fewer patterns in one allOf, "
            "smaller multipleOf, or fewer choices"
        )
    if done.returncode:
        return "compiling it ended in a fault of the library or at a memory limit; simplify it"
    return json.loads(done.stdout)


class _Bytes:
    """A vocabulary of single bytes: what takes long does not depend on the model's."""

    eos_token_id = _END
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(_END)), b"<end>")
    special_token_ids = (_END,)

    def __call__(self, text: bytes) -> list[int]:
        """Return the ids of a text."""
        return list(text)


def _compile(job: Mapping[str, Any]) -> str | None:
    try:
        text = LLMatcher.grammar_from_json_schema(job["schema"])
        tokenizer = LLTokenizer(TokenizerWrapper(_Bytes()))
        matcher = LLMatcher(tokenizer, text, log_level=0, limits=LLParserLimits(**job["limits"]))
        if not matcher.is_error():
            matcher.compute_bitmask()
    except ValueError as error:
        return str(error)
    # Behind its sentence the library says how its parser stood.
    reason = " ".join(matcher.get_error().partition("\n<")[0].split())
    return "no JSON text can match it" if reason.startswith("NoExtension") else reason or None


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    json.dump(_compile(json.load(sys.stdin)), sys.stdout)
