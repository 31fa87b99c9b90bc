"""The questions that every speed benchmark asks, the same text in the same order each time."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from deployments.openai.tokenizer import TOKENIZER_FILES, TextTokenizer

PROMPTS = (
    "Explain to a ten-year-old why the sky turns red at sunset.",
    "Write a short letter that thanks a neighbour for watering the plants.",
    "List five things to check before a long bicycle trip, with one reason each.",
    "What is the difference between a lake and a reservoir?",
    "Write a Python function that counts the vowels in a string, then describe how it works.",
    "Tell a story about a lighthouse keeper who finds a message in a bottle.",
    "How do noise-cancelling headphones work?",
    "Give me a recipe for lentil soup for four people.",
    "Summarise the rules of chess in one paragraph.",
    "Why do cats knead blankets? Give two possible explanations.",
    "Compare trains and planes for a journey of six hundred kilometres.",
    "Describe the water cycle in six steps.",
    "My houseplant has yellow leaves. What could be wrong, and what should I try first?",
    "Write a poem about a quiet library on a rainy afternoon.",
    "What did people use before refrigerators to keep food fresh?",
    "Explain the idea of supply and demand with an example from a farmers' market.",
    "Draft an email that moves a meeting from Tuesday to Thursday morning.",
    "What are prime numbers, and why do computers use them to keep secrets?",
    "Plan one day in a city that I have never visited, on a small budget.",
    "How does a bicycle stay upright while it moves?",
    "Name three inventions of the nineteenth century and say how each changed daily life.",
    "Write a dialogue between a customer and a baker about a birthday cake.",
    "What is the purpose of a unit test in software? Answer for a new programmer.",
    "Describe the taste of an orange to someone who has never eaten one.",
    "Which materials conduct electricity well, and why?",
    "Give advice to a student who is nervous before an exam.",
    "Explain how a seed grows into a tree, from the first root to the first leaf.",
    "Write a product description for a sturdy canvas backpack.",
    "Why do we have leap years?",
    "Turn this into a polite request: send me the report now.",
    "What happens inside a volcano before it erupts?",
    "Suggest a name and a motto for a small shop that repairs old radios.",
)


def questions(count: int, visit: int) -> list[str]:
    """Return ``count`` questions that no other visit asks.

    Each carries its visit's number in front, so that an engine with a prefix cache finds the
    system prompt there, as it would in production, but never an answer it has already prefilled.

    Args:
        count: How many; past the last one the list starts over under another number.
        visit: Which visit to an engine, in [0, 1000). All have the same number of tokens.
    """
    if not 0 <= visit < 1000:
        raise ValueError(f"visit must be in [0, 999], got {visit}: three digits are reserved")
    return [
        f"Note {visit:03d}{index // len(PROMPTS):02d}. {PROMPTS[index % len(PROMPTS)]}"
        for index in range(count)
    ]


class Chat:
    """A model's own chat template and tokenizer."""

    def __init__(self, model_folder: Path) -> None:
        self._tokenizer = TextTokenizer(
            {
                name: path.read_bytes()
                for name in TOKENIZER_FILES
                if (path := model_folder / name).exists()
            }
        )

    def token_ids(self, turns: Sequence[str]) -> list[int]:
        """Return a conversation as a prompt; the user speaks first and last."""
        roles = cycle(("user", "assistant"))
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, turns, strict=False)
        ]
        # The template writes the special tokens itself.
        return list(
            self._tokenizer.encode(self._tokenizer.render_chat(messages), add_special_tokens=False)
        )

    def text(self, token_ids: Sequence[int]) -> str:
        """Return what these ids say."""
        return self._tokenizer.decode(token_ids)


def chat_token_ids(model_folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Return each text as the prompt of a chat, in the model's own template and ids."""
    chat = Chat(model_folder)
    return [chat.token_ids((text,)) for text in texts]
