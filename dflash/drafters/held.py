"""A drafter whose weights can be given back and loaded again."""

from collections.abc import Callable, Sequence

from torch import Tensor

from dflash.drafters.base import ContextRows, Drafter, DrafterFacts, DraftRow
from dflash.errors import DrafterReleasedError


class HeldDrafter:
    """Holds a drafter, lets go of it, and loads it again.

    Attributes:
        facts: The drafter's, also while it is gone.
        context_bytes: Memory of its context's pages where all are written.
        weights_bytes: Memory of its weights.
    """

    def __init__(
        self, load: Callable[[], Drafter], context_bytes: int = 0, weights_bytes: int = 0
    ) -> None:
        """Load it.

        Args:
            load: Returns it with an empty context.
            context_bytes: Memory of its context's pages.
            weights_bytes: Memory of its weights.

        Raises:
            EngineError: It cannot be loaded.
        """
        self.context_bytes, self.weights_bytes = context_bytes, weights_bytes
        self._load = load
        self._drafter: Drafter | None = load()
        self.facts: DrafterFacts = self._drafter.facts

    @property
    def is_held(self) -> bool:
        """Whether its weights are in memory."""
        return self._drafter is not None

    def propose(self, rows: Sequence[DraftRow]) -> list[tuple[int, ...]]:
        """Return what it proposes.

        Raises:
            DrafterReleasedError: It is gone.
        """
        return self.present().propose(rows)

    def observe(self, features: Tensor, commits: Sequence[ContextRows]) -> None:
        """Let it extend its context.

        Raises:
            DrafterReleasedError: It is gone.
        """
        self.present().observe(features, commits)

    def release_context(self) -> None:
        """Give the memory of its context's pages back; nothing is left in them."""
        if self._drafter is not None:
            self._drafter.release_context()

    def release_weights(self) -> None:
        """Give all its memory back."""
        self._drafter = None

    def restore(self) -> None:
        """Load it where it is gone, with an empty context.

        Raises:
            EngineError: It cannot be loaded any more.
        """
        if not self.is_held:
            self._drafter = self._load()

    def present(self) -> Drafter:
        """Return the drafter.

        Raises:
            DrafterReleasedError: It is gone.
        """
        if self._drafter is None:
            raise DrafterReleasedError(
                f"the weights of drafter {self.facts.name} have been given back; restore it first"
            )
        return self._drafter
