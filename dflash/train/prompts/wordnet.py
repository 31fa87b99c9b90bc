"""Topics out of a WordNet database: thousands of nouns, each with what it means.

The database is that of WordNet 3.0 (Princeton University, the permissive WordNet licence), in its
own files ``index.noun`` and ``data.noun``; Debian's package ``wordnet-base`` holds them.
"""

import re
from pathlib import Path

from dflash.errors import ConfigError
from dflash.train.prompts.draw import Topic

# Numbers of the lexicographers' files whose nouns make topics for anyone: acts, animals,
# artefacts, knowledge, communication, events, feelings, food, objects, phenomena, plants,
# processes, shapes, states, substances, times.
_DOMAINS = frozenset(
    ["04", "05", "06", "09", "10", "11", "12", "13", "17", "19", "20", "22", "25", "26", "27", "28"]
)
_UNWANTED = re.compile(r"offensive|slur|vulgar|obscen|disparag|sexual|genital|nazi|rape", re.I)
_PLAIN = re.compile(r"[a-z]{3,}(_[a-z]{2,}){0,2}")


def wordnet_topics(folder: Path) -> tuple[Topic, ...]:
    """Return the nouns that the database's makers met in running text, in order.

    Args:
        folder: Holds ``index.noun`` and ``data.noun``.

    Raises:
        ConfigError: A file cannot be read.
    """
    try:
        index = (folder / "index.noun").read_text(encoding="utf-8")
        data = (folder / "data.noun").read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--wordnet is {folder}, where {error.filename} cannot be read ({error.strerror}); "
            "give the folder of a WordNet 3.0 database, or leave the option out"
        ) from error
    topics = (_topic_of(line, data) for line in index.splitlines() if line[:1] != " ")
    return tuple(topic for topic in topics if topic is not None)


def _topic_of(line: str, data: bytes) -> Topic | None:
    fields = line.split()
    lemma = fields[0]
    num_pointers = int(fields[3])
    num_tagged, offset = int(fields[5 + num_pointers]), int(fields[6 + num_pointers])
    if not num_tagged or not _PLAIN.fullmatch(lemma):
        return None
    head, _, tail = data[offset : data.index(b"\n", offset)].decode().partition(" | ")
    gloss = tail.split(";")[0].strip()
    if head.split()[1] not in _DOMAINS or _UNWANTED.search(tail):
        return None
    return Topic(lemma.replace("_", " "), gloss)
