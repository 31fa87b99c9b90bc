"""Stored sequences as the trainer reads them: by index, one at a time, more of them later."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dflash.errors import CheckpointError
from dflash.train.sequences import TappedSequence

# An anchor and one token to predict.
_FEWEST_RESPONSE_TOKENS = 2


@dataclass(frozen=True, slots=True)
class _Place:
    shard: Path
    start: int
    stop: int
    prompt_length: int
    temperature: float
    kind: str


class StoredSequences:
    """The sequences of a folder of shards that have something to predict.

    Args:
        folder: Holds ``shard-*.safetensors``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[Path] = set()
        self._places: list[_Place] = []
        self.refresh()

    def refresh(self) -> None:
        """Append the sequences of shards that were written since.

        Raises:
            CheckpointError: A shard is cut, or its kinds are missing.
        """
        for path in sorted(self._folder.glob("shard-*.safetensors")):
            if path not in self._seen:
                try:
                    self._places.extend(list(_places(path)))
                except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                    raise CheckpointError(
                        f"cannot read the shard {path} ({error}); remove it and regenerate"
                    ) from error
                self._seen.add(path)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> TappedSequence:
        place = self._places[index]
        with safe_open(place.shard, framework="pt") as file:
            return TappedSequence(
                kind=place.kind,
                prompt_length=place.prompt_length,
                temperature=place.temperature,
                token_ids=file.get_slice("token_ids")[place.start : place.stop],
                features=file.get_slice("features")[place.start : place.stop],
            )

    def spread(self, count: int) -> list[TappedSequence]:
        """Return so many sequences, evenly spread over all of them."""
        stride = max(1, len(self) // count)
        return [self[index] for index in range(0, len(self), stride)][:count]

    def response_counts(self, vocab_size: int) -> Tensor:
        """Return how often the target emitted each id, ``[vocab]`` int64."""
        counts = torch.zeros(vocab_size, dtype=torch.int64)
        for place in self._places:
            with safe_open(place.shard, framework="pt") as file:
                ids = file.get_slice("token_ids")[place.start + place.prompt_length : place.stop]
            counts += torch.bincount(ids.long(), minlength=vocab_size)
        return counts


def _places(shard: Path) -> Iterator[_Place]:
    kinds = json.loads(shard.with_suffix(".json").read_text(encoding="utf-8"))["kinds"]
    with safe_open(shard, framework="pt") as file:
        offsets = file.get_tensor("offsets").tolist()
        prompt_lengths = file.get_tensor("prompt_lengths").tolist()
        temperatures = file.get_tensor("temperatures").tolist()
    facts = zip(offsets[:-1], offsets[1:], prompt_lengths, temperatures, kinds, strict=True)
    for start, stop, prompt_length, temperature, kind in facts:
        if stop - start - prompt_length >= _FEWEST_RESPONSE_TOKENS:
            yield _Place(shard, start, stop, prompt_length, temperature, kind)
