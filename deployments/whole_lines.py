"""The lines of a file that may still be growing, or whose writer was killed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path


def whole_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file; a last one that was cut off is named on stderr and left out.

    Raises:
        OSError: The file cannot be read.
    """
    # What is no text is no JSON either, and whoever reads the line says which one it is.
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n") and not _is_json(line):
                sys.stderr.write(
                    f"{path}: line {number} is cut off: its writer was killed, or is writing it. "
                    f"The {number - 1} before it are read; to be rid of it: head -n {number - 1}\n"
                )
                return
            yield line


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
