"""`dflashctl explain`: what a replica's policy changed, when, and why."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deployments.timeline import timeline
from deployments.whole_lines import whole_lines
from policy.errors import PolicyError
from policy.log import entries_from


def main(argv: Sequence[str] | None = None) -> int:
    """Print the timeline of a decisions file; return 2 where it cannot be read."""
    parser = argparse.ArgumentParser(prog="dflashctl explain", description=__doc__)
    parser.add_argument("file", type=Path, help="decisions-REPLICA.jsonl that a replica wrote")
    path: Path = parser.parse_args(argv).file
    try:
        text = timeline(*entries_from(whole_lines(path)))
    except PolicyError as error:
        problem = str(error)
    except (ArithmeticError, ValueError) as error:
        problem = (
            f"it holds a figure that no replica wrote ({error}); give a file as it was written"
        )
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a file that a replica wrote"
    else:
        sys.stdout.write(text)
        return 0
    sys.stderr.write(f"{path}: {problem}\n")
    return 2
