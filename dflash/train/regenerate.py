"""Lets a target answer prompts as it is served, and keeps what its tapped layers held meanwhile."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tqdm import tqdm

from dflash.cache_folder import sha256_of
from dflash.config import EMBEDDED_MODEL, Dtype, EngineConfig, EngineLimits, KVCacheConfig
from dflash.drafters.config import default_taps
from dflash.engine import Engine
from dflash.errors import ConfigError, EngineError
from dflash.load import load_target
from dflash.request import FinishReason, GenerateRequest, TokenOutput
from dflash.target import Target
from dflash.train.answer_sampling import Sampling
from dflash.train.bounds import check_positive, check_within
from dflash.train.conversation import Conversation
from dflash.train.feature_tap import FeatureTap
from dflash.train.prompts.file import read_prompts
from dflash.train.prompts.mix import Prompt
from dflash.train.sequences import Manifest, SequenceFolder, TappedSequence

_GIB = 1 << 30
_NUM_TAPS = 5


@dataclass(slots=True)
class _Dialogue:
    """One prompt on its way: the messages so far, and the sequences they came to."""

    index: int
    prompt: Prompt
    messages: list[dict[str, str]] = field(default_factory=list)
    sequences: list[TappedSequence] = field(default_factory=list)
    request: GenerateRequest | None = None
    answer: list[int] = field(default_factory=list)


class Regeneration:
    """Answers prompts through an engine, many at once; each prompt's result is its own.

    Results do not depend on what else runs: the target is exact and every prompt has its own
    noise. So a run that was cut short goes on to the same bytes.
    """

    def __init__(
        self,
        target: Target,
        conversation: Conversation,
        sampling: Sampling,
        limits: EngineLimits,
        taps: tuple[int, ...],
    ) -> None:
        """Put an engine around the target.

        Args:
            target: Answers the prompts.
            conversation: Turns words into the target's ids and back.
            sampling: How answers are chosen.
            limits: Bounds of a step; ``max_num_seqs`` prompts are answered at once.
            taps: Layers to record.
        """
        self._conversation = conversation
        self._sampling = sampling
        self._tap = FeatureTap(target, taps)
        # Every token has to be computed where its features are seen: nothing may be shared.
        self._engine = Engine(self._tap, limits, prefix_caching=False, observe=self._tap.observe)
        self._live: dict[str, _Dialogue] = {}
        self.num_tokens = 0

    def answers(
        self, prompts: Iterator[tuple[int, Prompt]]
    ) -> Iterator[tuple[int, list[TappedSequence]]]:
        """Yield each prompt's index and sequences, in the order in which they end.

        A sequence is the whole conversation up to one answer, so a prompt of two turns gives two.
        A turn that is too long is left out, and with it those that follow.

        Args:
            prompts: Pairs of an index and a prompt.

        Raises:
            EngineError: The engine failed, or refused a prompt.
        """
        is_open = True
        while is_open or self._live:
            while is_open and len(self._live) < self._engine.limits.max_num_seqs:
                following = next(prompts, None)
                if following is None:
                    is_open = False
                elif not self._ask(dialogue := _Dialogue(*following)):
                    yield dialogue.index, []
            for output in self._engine.step().outputs:
                dialogue = self._live[output.request_id]
                dialogue.answer.extend(output.token_ids)
                self.num_tokens += len(output.token_ids)
                if output.finish_reason is not None:
                    self._finish(dialogue, output)
                    if not self._ask(dialogue):
                        yield dialogue.index, dialogue.sequences

    def _ask(self, dialogue: _Dialogue) -> bool:
        """Submit the next turn of a dialogue; return whether there is one that fits."""
        turn = len(dialogue.sequences)
        if turn == len(dialogue.prompt.turns):
            return False
        dialogue.messages.append({"role": "user", "content": dialogue.prompt.turns[turn]})
        token_ids = self._conversation.prompt_token_ids(dialogue.messages)
        max_tokens = self._sampling.max_answer(len(token_ids), turn)
        if not max_tokens:
            return False
        params, seed = self._sampling.of_prompt(dialogue.index)
        dialogue.request = GenerateRequest(
            request_id=f"{dialogue.index}/{turn}",
            prompt_token_ids=token_ids,
            max_tokens=max_tokens,
            sampling=params,
            seed=seed,
            choice=turn,
        )
        dialogue.answer = []
        self._engine.submit(dialogue.request)
        self._live[dialogue.request.request_id] = dialogue
        return True

    def _finish(self, dialogue: _Dialogue, output: TokenOutput) -> None:
        """Turn an answered request into a sequence and a message."""
        del self._live[output.request_id]
        request = dialogue.request
        if request is None or output.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
            raise EngineError(f"prompt {dialogue.index} was not answered: {output.error}")
        stop = () if output.stop_token_id is None else (output.stop_token_id,)
        token_ids = (*request.prompt_token_ids, *dialogue.answer, *stop)
        dialogue.sequences.append(
            TappedSequence(
                kind=dialogue.prompt.kind,
                prompt_length=len(request.prompt_token_ids),
                temperature=request.sampling.temperature,
                token_ids=torch.tensor(token_ids, dtype=torch.int32),
                features=self._tap.take(request.request_id, len(token_ids)),
            )
        )
        text = self._conversation.text_of(dialogue.answer)
        dialogue.messages.append({"role": "assistant", "content": text})


def taps_by_rule(num_layers: int) -> tuple[int, ...]:
    """Return five layers to tap, spread as in published drafters whose config names none.

    Raises:
        ConfigError: There are too few layers to spread them.
    """
    taps = default_taps(num_layers, _NUM_TAPS)
    if len(set(taps)) < _NUM_TAPS or taps[0] > taps[-1]:
        raise ConfigError(
            f"the target has {num_layers} layers, too few for {_NUM_TAPS} taps by rule; name them "
            "with --taps"
        )
    return taps


def fill_folder(
    folder: SequenceFolder,
    regeneration: Regeneration,
    prompts: Sequence[Prompt],
    prompts_per_shard: int,
    max_bytes: int,
) -> bool:
    """Write the shards that the folder lacks; return False where its bound stopped that.

    Args:
        folder: Claimed already. Its shards are skipped.
        regeneration: Answers the prompts.
        prompts: All of them, in order: a shard's number says which it answers.
        prompts_per_shard: How many each shard answers.
        max_bytes: Bound of the folder's shards on disk.
    """
    present = frozenset(folder.indices())
    missing = [
        (index, prompt)
        for index, prompt in enumerate(prompts)
        if index // prompts_per_shard not in present
    ]
    num_open = Counter(index // prompts_per_shard for index, _ in missing)
    answered: dict[int, list[TappedSequence]] = {}
    started_s = time.monotonic()
    with tqdm(total=len(prompts), initial=len(prompts) - len(missing), unit=" prompts") as bar:
        for index, sequences in regeneration.answers(iter(missing)):
            answered[index] = sequences
            rate = regeneration.num_tokens / (time.monotonic() - started_s)
            bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
            bar.update()
            shard = index // prompts_per_shard
            num_open[shard] -= 1
            if num_open[shard]:
                continue
            first = shard * prompts_per_shard
            places = range(first, min(first + prompts_per_shard, len(prompts)))
            content = [sequence for place in places for sequence in answered.pop(place)]
            size = sum(sequence.features.nbytes for sequence in content)
            if folder.num_bytes() + size > max_bytes:
                return False
            folder.write(shard, content)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Regenerate as the command line says and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="dflashctl train regenerate",
        description="Let a target answer prompts and store its tapped layers. Resumable.",
    )
    parser.add_argument("--prompts", type=Path, required=True, help="file of prompts")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards")
    parser.add_argument("--model", default=EMBEDDED_MODEL, help="the target")
    parser.add_argument("--dtype", type=Dtype, default=Dtype.BFLOAT16, choices=list(Dtype))
    parser.add_argument("--taps", type=_layers, help="layers to tap, such as 1,8,14,20,27")
    parser.add_argument("--seed", type=int, default=0, help="of temperatures and noise")
    parser.add_argument("--temperature", type=float, default=1.0, help="of sampled prompts")
    parser.add_argument("--temperature-share", type=float, default=0.2, help="sampled prompts")
    parser.add_argument("--max-prompt-tokens", type=int, default=320)
    parser.add_argument("--max-answer-tokens", type=int, default=320)
    parser.add_argument("--max-tokens", type=int, default=640, help="of prompt and answer")
    parser.add_argument("--prompts-per-shard", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=96, help="prompts answered at once")
    parser.add_argument("--kv-gib", type=float, default=2.0, help="memory for the KV pages")
    parser.add_argument("--max-gib", type=float, default=20.0, help="most disk for the shards")
    settings = parser.parse_args(arguments)
    try:
        is_complete = _regenerate(settings)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if not is_complete:
        sys.stdout.write(
            f"stopped: the next shard would take {settings.out} over {settings.max_gib} GiB; "
            "raise --max-gib to go on\n"
        )
    return 0


def _regenerate(settings: argparse.Namespace) -> bool:
    check_within("--prompts-per-shard", settings.prompts_per_shard, 1)
    check_positive("--max-gib", settings.max_gib)
    sampling = Sampling(
        seed=settings.seed,
        temperature=settings.temperature,
        share=settings.temperature_share,
        max_prompt_tokens=settings.max_prompt_tokens,
        max_answer_tokens=settings.max_answer_tokens,
        max_tokens=settings.max_tokens,
    )
    prompts = list(read_prompts(settings.prompts))
    limits = EngineLimits(max_num_seqs=settings.concurrency)
    target = load_target(
        EngineConfig(
            model=settings.model,
            dtype=settings.dtype,
            max_model_len=settings.max_tokens,
            kv_cache=KVCacheConfig(memory_gib=settings.kv_gib),
            limits=limits,
        )
    )
    taps = settings.taps or taps_by_rule(target.runner.facts.num_layers)
    folder = SequenceFolder(settings.out)
    folder.claim(
        Manifest(
            model=settings.model,
            fingerprint=target.fingerprint,
            taps=taps,
            dtype=str(settings.dtype),
            form=target.exactness.form,
            prompts_sha256=sha256_of(settings.prompts),
            prompts_per_shard=settings.prompts_per_shard,
            sampling=sampling,
        )
    )
    conversation = Conversation(target.model_folder)
    regeneration = Regeneration(target.runner, conversation, sampling, limits, taps)
    return fill_folder(
        folder, regeneration, prompts, settings.prompts_per_shard, int(settings.max_gib * _GIB)
    )


def _layers(text: str) -> tuple[int, ...]:
    return tuple(int(layer) for layer in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
