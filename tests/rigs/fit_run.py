"""What a training run needs: a target of a few kilobytes, stored sequences, a command line."""

from pathlib import Path

import torch

from dflash.models.checkpoint import open_checkpoint
from dflash.train.answer_sampling import Sampling
from dflash.train.sequences import Manifest, SequenceFolder, TappedSequence
from tests.rigs.byte_tokenizer import byte_level_tokenizer
from tests.rigs.tiny_checkpoint import TINY_CONFIG, write_tiny_checkpoint

VOCABULARY = 320
TAPS = (0,)


def sequence(seed: int, length: int = 20) -> TappedSequence:
    generator = torch.Generator().manual_seed(seed)
    return TappedSequence(
        kind=("chat", "code")[seed % 2],
        prompt_length=5,
        temperature=0.0,
        token_ids=torch.randint(5, 40, (length,), generator=generator, dtype=torch.int32),
        features=torch.randn(length, 64, generator=generator).bfloat16(),
    )


def write_target(folder: Path) -> Path:
    write_tiny_checkpoint(folder, config={**TINY_CONFIG, "vocab_size": VOCABULARY})
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def stored(folder: Path, fingerprint: str, shards: int = 2) -> SequenceFolder:
    sequences = SequenceFolder(folder)
    sequences.claim(
        Manifest(
            model="tiny",
            fingerprint=fingerprint,
            taps=TAPS,
            dtype="bfloat16",
            form="torch",
            prompts_sha256="",
            prompts_per_shard=4,
            sampling=Sampling(seed=0, temperature=1.0, share=0.0),
        )
    )
    for shard in range(shards):
        sequences.write(shard, [sequence(4 * shard + seed) for seed in range(4)])
    return sequences


def arguments(tmp_path: Path, target: Path, steps: int) -> list[str]:
    stored(tmp_path / "sequences", open_checkpoint(str(target), tmp_path).fingerprint)
    folders = {
        "--model": target,
        "--sequences": tmp_path / "sequences",
        "--held-out": tmp_path / "sequences",
        "--run": tmp_path / "run",
        "--export": tmp_path / "drafter",
    }
    settings = {
        "--mask-token-id": 3,
        "--layers": 1,
        "--steps": steps,
        "--sequences-per-step": 2,
        "--anchors": 4,
        "--draft-vocab-size": 300,
        "--selector-rank": 4,
    }
    pairs = [(name, str(value)) for name, value in (folders | settings).items()]
    return ["fit", *(part for pair in pairs for part in pair)]
