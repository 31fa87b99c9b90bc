"""The book of the drafter's context: how far each page holds it."""

from collections.abc import Iterable, Sequence

from dflash.errors import AccountingError


class ContextBook:
    """How many leading slots of each page hold the drafter's context.

    The drafter's pages bear the numbers of the target's, so this is a fact of a page and not of a
    sequence: whoever shares a page shares what the drafter has there. A page lent anew holds
    none; one computed without the drafter stays behind until a sequence that needs it catches up.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._page_size = page_size
        self._filled = [0] * num_pages

    def length(self, pages: Sequence[int], num_computed: int, known: int = 0) -> int:
        """Return how many leading tokens have context, at most ``num_computed``.

        Args:
            pages: A sequence's pages in order.
            num_computed: Its computed tokens.
            known: So many are known to have it; looking begins at their last page.
        """
        index = known // self._page_size
        while index * self._page_size < num_computed:
            filled = self._filled[pages[index]]
            if filled < self._page_size:
                return min(index * self._page_size + filled, num_computed)
            index += 1
        return num_computed

    def lent(self, pages: Iterable[int]) -> None:
        """Enter that these pages begin anew."""
        for page in pages:
            self._filled[page] = 0

    def clear(self) -> None:
        """Enter that no page holds any."""
        self._filled = [0] * len(self._filled)

    def written(self, pages: Sequence[int], start: int, end: int) -> None:
        """Enter that the drafter now holds positions ``start`` to ``end - 1``.

        Raises:
            AccountingError: Positions before ``start`` in its page are missing.
        """
        for index in range(start // self._page_size, -(-end // self._page_size)):
            page, first = pages[index], index * self._page_size
            if self._filled[page] < start - first:
                raise AccountingError(
                    f"drafter context: page {page} holds {self._filled[page]} tokens and the next "
                    f"one written is {start - first}"
                )
            # Writing a shared page again takes nothing from those who have more of it.
            self._filled[page] = max(self._filled[page], min(end - first, self._page_size))

    def skipped(self, pages: Sequence[int], start: int, end: int) -> None:
        """Enter that positions ``start`` to ``end - 1`` were computed without context.

        What lies at or after ``start`` in their pages is void.
        """
        for index in range(start // self._page_size, -(-end // self._page_size)):
            first = index * self._page_size
            page = pages[index]
            self._filled[page] = min(self._filled[page], max(start - first, 0))
