"""How many choices an ingress may have at once, and who holds the places."""

from collections.abc import Callable
from contextlib import aclosing

from deployments.client import QUEUE_FULL, RETRY_AFTER_S
from deployments.openai import errors
from deployments.openai.choices import ChoicePieces
from deployments.openai.errors import RefusedError


class Places:
    """Slots and queue of all replicas together: each live choice holds a place of them."""

    def __init__(self, most: Callable[[], int | None]) -> None:
        """Begin with nobody placed.

        Args:
            most: Tells how many places there are now; None where nothing bounds them.
        """
        self._most = most
        self._num_taken = 0

    async def hold(self, pieces: ChoicePieces, num_choices: int) -> ChoicePieces:
        """Yield the pieces; every choice holds a place until it ends, or the reader leaves.

        Raises:
            RefusedError: There are not as many places, or not as many are free.
        """
        most = self._most()
        if most is not None and num_choices > most:
            reason = f"{num_choices} choices at once, and there are {most} places; ask for fewer"
            raise RefusedError(errors.invalid_parameter("n", reason))
        if most is not None and self._num_taken + num_choices > most:
            raise RefusedError(errors.queue_full(QUEUE_FULL, RETRY_AFTER_S))
        # No pause since the look: all choices of an answer are let in together, or none.
        self._num_taken += num_choices
        num_held = num_choices
        try:
            async with aclosing(pieces):
                async for index, piece in pieces:
                    if piece.finish_reason is not None:
                        self._num_taken -= 1
                        num_held -= 1
                    yield index, piece
        finally:
            self._num_taken -= num_held
