"""Sequences a target produced, with what its tapped layers held: shards on disk, each atomic.

A folder holds ``manifest.json``, which says what made it, and for each shard a pair of files:
``shard-00000.safetensors`` with the tensors and ``shard-00000.json`` with the kinds of prompts.
The tensors' file comes last, so where it exists the shard is whole. Its tensors hold n sequences
laid end to end:

    token_ids       ``[sum]`` int32; prompt, answer, and the stop token where one ended it
    offsets         ``[n + 1]`` int64; sequence i owns rows ``offsets[i]:offsets[i + 1]``
    prompt_lengths  ``[n]`` int32
    temperatures    ``[n]`` float32; 0 where the answer is greedy
    features        ``[sum, taps * hidden]``; zero at the last token of each sequence
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from dflash.errors import ConfigError
from dflash.train.answer_sampling import Sampling

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder of sequences was made from; equal manifests mean equal shards.

    Attributes:
        model: The target, as ``engine.model`` named it.
        fingerprint: Of its checkpoint, as `load_target` tells it.
        taps: The tapped layers, in the order their rows are joined.
        dtype: Type of weights, activations and features.
        form: The kernels' form; features are equal bit for bit within one form.
        prompts_sha256: Hash of the prompts' file.
        prompts_per_shard: Shard k answers the prompts from ``k * prompts_per_shard`` on.
        sampling: How answers were chosen, and how long they may be.
    """

    model: str
    fingerprint: str
    taps: tuple[int, ...]
    dtype: str
    form: str
    prompts_sha256: str
    prompts_per_shard: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class TappedSequence:
    """One prompt with its answer, and what the tapped layers held at each token.

    The last token was chosen and never computed, so its row of features is zero: what a drafter
    learns at position p needs the features up to p - 1 alone.

    Attributes:
        kind: Kind of the prompt.
        prompt_length: Tokens that are the prompt's.
        temperature: 0 where the answer is greedy.
        token_ids: ``[n]`` int32. The stop token is the last one where one ended the answer.
        features: ``[n, taps * hidden]``, the tapped layers' outputs side by side.
    """

    kind: str
    prompt_length: int
    temperature: float
    token_ids: Tensor
    features: Tensor


class SequenceFolder:
    """A folder of shards, written by one process and read by any."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, manifest: Manifest) -> None:
        """Make the folder this manifest's own, or check that it is.

        Raises:
            ConfigError: It holds sequences that were made otherwise.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / MANIFEST_FILE
        if file.exists():
            _check_same(file, self.manifest(), manifest)
        else:
            text = json.dumps(asdict(manifest), indent=2) + "\n"
            _write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))

    def manifest(self) -> Manifest:
        """Return what the folder was made from.

        Raises:
            ConfigError: It has no manifest, or a damaged one.
        """
        file = self.path / MANIFEST_FILE
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            sampling = Sampling(**content["sampling"])
            return Manifest(**content | {"taps": tuple(content["taps"]), "sampling": sampling})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file} cannot be read ({error}); regenerate the sequences into a new folder"
            ) from error

    def indices(self) -> list[int]:
        """Return the numbers of the shards that are whole, ascending."""
        return sorted(int(path.stem[6:]) for path in self.path.glob("shard-*.safetensors"))

    def write(self, index: int, sequences: Sequence[TappedSequence]) -> None:
        """Write a shard, which may be empty; a kill at any point leaves it whole or absent."""
        lengths = [len(sequence.token_ids) for sequence in sequences]
        token_ids, features = torch.empty(0, dtype=torch.int32), torch.empty(0, 0)
        if sequences:
            token_ids = torch.cat([sequence.token_ids for sequence in sequences])
            features = torch.cat([sequence.features for sequence in sequences])
        tensors = {
            "token_ids": token_ids,
            "offsets": torch.tensor([0, *lengths]).cumsum(0),
            "prompt_lengths": torch.tensor([s.prompt_length for s in sequences], dtype=torch.int32),
            "temperatures": torch.tensor([s.temperature for s in sequences], dtype=torch.float32),
            "features": features,
        }
        kinds = json.dumps({"kinds": [sequence.kind for sequence in sequences]}) + "\n"
        file = self._file(index)
        _write_whole(
            file.with_suffix(".json"), lambda path: path.write_text(kinds, encoding="utf-8")
        )
        _write_whole(file, lambda path: save_file(tensors, path))

    def num_bytes(self) -> int:
        """Return what the shards take on disk."""
        return sum(path.stat().st_size for path in self.path.glob("shard-*"))

    def _file(self, index: int) -> Path:
        return self.path / f"shard-{index:05d}.safetensors"


def _check_same(file: Path, found: Manifest, wanted: Manifest) -> None:
    differing = {
        name: (asdict(found)[name], value)
        for name, value in asdict(wanted).items()
        if asdict(found)[name] != value
    }
    if differing:
        name, (old, new) = next(iter(differing.items()))
        raise ConfigError(
            f"{file} says {name} is {old}, and this run has {new}; name another --out folder, or "
            "repeat the settings it was begun with"
        )


def _write_whole(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, flush it to disk, and move it there."""
    partial = file.with_suffix(file.suffix + ".partial")
    write(partial)
    for path, replaces in ((partial, True), (file.parent, False)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if replaces:
            partial.replace(file)
