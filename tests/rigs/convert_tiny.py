"""A process that converts a GGUF file and prints what happens, one event a line."""

import logging
import os
import sys
from pathlib import Path

from dflash.cache_folder import exclusive, sha256_of
from dflash.models.embedded import GgufSource, ensure_converted

logger = logging.getLogger(__name__)


def main(verb: str, gguf: Path, folder: Path) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    if verb == "hold-lock":
        with exclusive(folder.with_name(folder.name + ".lock"), on_wait=logger.info):
            logger.info("held")
            sys.stdin.read()
        return

    def on_progress(phase: str, fraction: float) -> None:
        if verb == "die-halfway" and fraction > 0.5:
            # No handler and no clean-up runs, as in a kill.
            os._exit(9)

    source = GgufSource(find=lambda: gguf, sha256=sha256_of(gguf))
    ensure_converted(source, folder, on_progress)
    logger.info("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
