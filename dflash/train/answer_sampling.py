"""How a prompt is answered: greedy or sampled, with which noise, and how long."""

from dataclasses import dataclass
from random import Random

from dflash.errors import ConfigError
from dflash.request import MAX_SEED, SamplingParams
from dflash.train.bounds import check_within


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are chosen, prompt by prompt, and how long they become.

    Attributes:
        seed: What each prompt's share and noise are drawn from.
        temperature: Of the prompts that are sampled.
        share: Share of the prompts that are sampled; the others are greedy.
        max_prompt_tokens: Longer prompts are left out.
        max_answer_tokens: Longer answers are cut.
        min_answer_tokens: A second turn is left out where the first leaves less room than this.
        max_tokens: Longer sequences are cut.
    """

    seed: int = 0
    temperature: float = 1.0
    share: float = 0.2
    max_prompt_tokens: int = 320
    max_answer_tokens: int = 320
    min_answer_tokens: int = 128
    max_tokens: int = 640

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ConfigError(f"--temperature-share must be in [0, 1], got {self.share}")
        check_within("--temperature", self.temperature, 0, 100)
        check_within("--max-answer-tokens", self.max_answer_tokens, 1)
        if not 0 < self.max_prompt_tokens < self.max_tokens:
            raise ConfigError(
                f"max_prompt_tokens must be in [1, {self.max_tokens - 1}], under max_tokens, got "
                f"{self.max_prompt_tokens}"
            )

    def max_answer(self, num_prompt_tokens: int, turn: int) -> int:
        """Return how long the answer to a prompt may become; 0 where the prompt is left out."""
        room = min(self.max_answer_tokens, self.max_tokens - num_prompt_tokens)
        fits = (
            room >= self.min_answer_tokens if turn else num_prompt_tokens <= self.max_prompt_tokens
        )
        return room if fits else 0

    def of_prompt(self, index: int) -> tuple[SamplingParams, int]:
        """Return the parameters and the seed of a prompt, from its place in the file alone."""
        draw = Random(f"{self.seed}/{index}")
        temperature = self.temperature if draw.random() < self.share else 0.0
        return SamplingParams(temperature=temperature), draw.randint(0, MAX_SEED)
