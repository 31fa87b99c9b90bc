"""Writes prompts to a file: ``dflashctl train prompts --count N --seed S --out FILE``."""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from dflash.errors import EngineError
from dflash.train.overlap import grams_in, grams_of_tasks
from dflash.train.prompts.draw import Split
from dflash.train.prompts.file import line_of
from dflash.train.prompts.mix import material, prompts


def main(arguments: list[str] | None = None) -> int:
    """Write the prompts and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="dflashctl train prompts",
        description="Write prompts of our own making, one JSON object a line.",
    )
    parser.add_argument("--count", type=int, required=True, help="how many prompts")
    parser.add_argument("--seed", type=int, default=0, help="of the stream; default 0")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--held-out", action="store_true", help="draw from the held-out side")
    parser.add_argument("--wordnet", type=Path, help="folder of a WordNet 3.0 database")
    parser.add_argument("--tasks", type=Path, help="drop prompts that share 13 words with these")
    settings = parser.parse_args(arguments)
    try:
        forbidden = grams_of_tasks(settings.tasks) if settings.tasks else {}
        split = Split.HELD_OUT if settings.held_out else Split.TRAINING
        stream = prompts(settings.seed, split, material(settings.wordnet))
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    num_dropped = 0
    with settings.out.open("w", encoding="utf-8") as file, tqdm(total=settings.count) as bar:
        while bar.n < settings.count:
            prompt = next(stream)
            if any(gram in forbidden for gram in grams_in(prompt)):
                num_dropped += 1
                continue
            file.write(line_of(prompt) + "\n")
            bar.update()
    sys.stdout.write(f"{settings.count} prompts written, {num_dropped} dropped\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
