"""Random requests of many kinds that share prefixes, ids and seeds: what a storm is made of."""

import random
from collections.abc import Sequence
from dataclasses import replace

from dflash.grammar.text import Grammar
from dflash.request import GenerateRequest, SamplingParams

MAX_PROMPT = 300
MAX_TOKENS = 64
_NUM_PREFIXES = 3


class RandomRequests:
    """A source of requests, reproducible by its seed."""

    def __init__(self, seed: int, vocab_size: int, grammars: Sequence[Grammar] = ()) -> None:
        """Prepare the prefixes.

        Args:
            seed: Of everything that is drawn.
            vocab_size: Ids are below.
            grammars: What one request in five must match one of, where there are any.
        """
        self._random = random.Random(seed)
        self._vocab_size = vocab_size
        self._grammars = grammars
        self._prefixes = [
            self._ids(self._random.randint(8, MAX_PROMPT // 2)) for _ in range(_NUM_PREFIXES)
        ]

    def draw(self, request_id: str) -> GenerateRequest:
        """Return the next request under this id."""
        prompt = self._prompt()
        request = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=prompt,
            max_tokens=self._random.randint(1, MAX_TOKENS),
            sampling=self._sampling(),
            seed=self._random.getrandbits(53),
            choice=self._random.randrange(3),
            max_draft_length=self._random.choice((*[None] * 10, 0, 2)),
        )
        if self._grammars and self._random.random() < 0.2:
            # The grammar alone says where its output ends.
            sampling = replace(request.sampling, min_tokens=0, ignore_eos=False)
            grammar = self._random.choice(self._grammars)
            return replace(request, sampling=sampling, grammar=grammar)
        return request

    def _prompt(self) -> tuple[int, ...]:
        longest = self._random.choice((20, 80, MAX_PROMPT))
        if self._random.random() < 0.4:
            return self._ids(self._random.randint(1, longest))
        prefix = self._random.choice(self._prefixes)
        # Cut anywhere, so that prompts part in the middle of pages too.
        kept = prefix[: self._random.randint(1, len(prefix))]
        return kept + self._ids(self._random.randint(0, min(longest, MAX_PROMPT - len(kept))))

    def _sampling(self) -> SamplingParams:
        draw = self._random
        common = {
            "stop_token_ids": self._ids(draw.choice((0, 0, 1, 3))),
            "min_tokens": draw.choice((0, 0, 0, 5)),
            "ignore_eos": draw.random() < 0.3,
            "num_logprobs": draw.choice((None, None, 0, 3)),
            "repetition_penalty": draw.choice((1.0, 1.0, 1.3)),
            "presence_penalty": draw.choice((0.0, 0.0, 0.7)),
            "frequency_penalty": draw.choice((0.0, 0.0, -0.4)),
            "logit_bias": tuple((id_, 2.5) for id_ in self._ids(draw.choice((0, 0, 2)))),
        }
        if draw.random() < 0.4:
            return SamplingParams(temperature=0.0, **common)
        return SamplingParams(
            temperature=draw.choice((0.3, 1.0, 2.0)),
            top_k=draw.choice((0, 0, 5, 40)),
            top_p=draw.choice((1.0, 1.0, 0.9)),
            min_p=draw.choice((0.0, 0.0, 0.05)),
            **common,
        )

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(self._vocab_size) for _ in range(count))
