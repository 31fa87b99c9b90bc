"""`dflashctl replay`: make recorded decisions again, and say whether they are the same."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deployments.whole_lines import whole_lines
from policy.errors import PolicyError
from policy.recording import Replayed, replay


def main(argv: Sequence[str] | None = None) -> int:
    """Replay a file; return 0 where all is the same, 1 at a difference, 2 where it has no sense."""
    parser = argparse.ArgumentParser(prog="dflashctl replay", description=__doc__)
    parser.add_argument("file", type=Path, help="signals-REPLICA.jsonl of a replica that keeps it")
    path: Path = parser.parse_args(argv).file
    try:
        return _replayed(path)
    except PolicyError as error:
        problem = str(error)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a file that a replica wrote"
    sys.stderr.write(f"{path}: {problem}\n")
    return 2


def _replayed(path: Path) -> int:
    count = 0
    for made in replay(whole_lines(path)):
        count += 1
        if not made.is_same:
            sys.stdout.write(f"{path}: line {made.line}: {_difference(made, count)}\n")
            return 1
    if not count:
        raise PolicyError("it holds no decision; let the replica serve some requests first")
    sys.stdout.write(f"{path}: {_decisions(count)} made again, all the same to the bit\n")
    return 0


def _difference(made: Replayed, count: int) -> str:
    then, now = made.recorded, made.decision
    lines = [
        f"decision {count} is the first that differs, at {then.signals.now_s:.3f} s",
        f"  then  {then.arm.name:<14}{then.reason}",
        f"  now   {now.plan.arm.name:<14}{now.reason}",
    ]
    if (then.arm, then.reason) == (now.plan.arm, now.reason):
        lines.append("  The plans are alike; what they are worth, or what was learnt, is not.")
    return "\n".join(lines)


def _decisions(count: int) -> str:
    return "1 decision" if count == 1 else f"{count} decisions"
