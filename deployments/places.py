"""How many choices an ingress may have at once, and how many prompt tokens may wait before them."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

from deployments.client import QUEUE_FULL, RETRY_AFTER_S
from deployments.openai import errors
from deployments.openai.choices import ChoicePieces
from deployments.openai.errors import RefusedError
from deployments.room import Bounds


class Places:
    """Slots and queue of all replicas together: each live choice holds a place of them.

    A choice that no engine has taken yet waits in Serve's queue, which counts requests only; its
    prompt's tokens count here until an engine, which bounds those that wait for it, has it.
    """

    def __init__(self, bounds: Callable[[], Bounds]) -> None:
        """Begin with nobody placed.

        Args:
            bounds: Tells what there is now.
        """
        self._bounds = bounds
        self._num_taken = 0
        self._num_waiting_tokens = 0

    async def hold(self, pieces: ChoicePieces, prompt_lengths: Sequence[int]) -> ChoicePieces:
        """Yield the pieces; every choice holds a place until it ends, or the reader leaves.

        Args:
            pieces: Of all choices of an answer; the first of each says that an engine took it.
            prompt_lengths: Tokens of each choice's prompt.

        Raises:
            RefusedError: There are not as many places, or not as many are free.
        """
        num_choices = len(prompt_lengths)
        self._require_room(num_choices, sum(prompt_lengths))
        # No pause since the look: all choices of an answer are let in together, or none.
        self._num_taken += num_choices
        self._num_waiting_tokens += sum(prompt_lengths)
        num_held, waiting = num_choices, dict(enumerate(prompt_lengths))
        try:
            async with aclosing(pieces):
                async for index, piece in pieces:
                    if index in waiting:
                        self._num_waiting_tokens -= waiting.pop(index)
                    if piece.finish_reason is not None:
                        self._num_taken -= 1
                        num_held -= 1
                    yield index, piece
        finally:
            self._num_taken -= num_held
            self._num_waiting_tokens -= sum(waiting.values())

    def _require_room(self, num_choices: int, num_tokens: int) -> None:
        bounds = self._bounds()
        if bounds.places is not None and num_choices > bounds.places:
            reason = f"{num_choices} choices at once, and there are {bounds.places} places"
            raise RefusedError(errors.invalid_parameter("n", f"{reason}; ask for fewer"))
        if bounds.places is not None and self._num_taken + num_choices > bounds.places:
            raise RefusedError(errors.queue_full(QUEUE_FULL, RETRY_AFTER_S))
        most, num_waiting = bounds.waiting_tokens, self._num_waiting_tokens
        # As in an engine's queue, a prompt over the whole bound may wait where no other does.
        if most is not None and num_waiting and num_waiting + num_tokens > most:
            reason = (
                f"{num_waiting} prompt tokens wait for an engine, this request has {num_tokens}, "
                f"and all max_waiting_tokens together are {most}; retry later"
            )
            raise RefusedError(errors.queue_full(reason, RETRY_AFTER_S))
