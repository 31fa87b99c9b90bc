"""The folder that replicas record in: the newest replicas' files stay, older ones go."""

import logging
import re
from collections import defaultdict
from pathlib import Path

# Two kinds of files of 64 MiB each: 2 GiB at most.
MOST_REPLICAS = 16
_OURS = re.compile(r"(?:decisions|signals)-(?P<replica>.+?)(?:\.1)?\.jsonl")

logger = logging.getLogger(__name__)


def forget_oldest(folder: Path, replica: str, most: int = MOST_REPLICAS) -> None:
    """Remove the files of the replicas that wrote longest ago; raises nothing.

    Each replica that starts has a name of its own, so without this the folder would grow for ever.
    One that is still alive counts by what it wrote last.

    Args:
        folder: Where they are; it need not exist.
        replica: Whose files are about to be written, and count among the newest.
        most: Replicas whose files stay, that one included.
    """
    files: dict[str, list[Path]] = defaultdict(list)
    written_s: dict[str, float] = defaultdict(float)
    try:
        for path in folder.glob("*.jsonl"):
            found = _OURS.fullmatch(path.name)
            if found is None or found["replica"] == replica:
                continue
            files[found["replica"]].append(path)
            written_s[found["replica"]] = max(written_s[found["replica"]], path.stat().st_mtime)
        for name in sorted(files, key=written_s.__getitem__, reverse=True)[most - 1 :]:
            for path in files[name]:
                path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("old records in %s stay: %s", folder, error)
