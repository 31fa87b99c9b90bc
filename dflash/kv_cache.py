"""The books of KV pages: who owns each, which are shared, which may be taken."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dflash.errors import AccountingError
from dflash.prefix_cache import CachedPage, PrefixCache


@dataclass(eq=False, slots=True)
class PageTable:
    """The pages of one sequence, in the order of its positions.

    Attributes:
        pages: All of them. The first ``len(path)`` are full, computed and read-only, and may be
            shared; the others belong to this table alone.
        path: The prefix cache's entries of the read-only ones.
    """

    pages: list[int] = field(default_factory=list)
    path: list[CachedPage] = field(default_factory=list)


class KVCache:
    """Pages lent to tables and kept for reuse.

    A page is in exactly one state: *free* (no content anybody can reach), *cached* (content in
    the prefix cache, no owner: taken back least recently used first), or *owned* by one or more
    tables. Whoever owns a cached page also owns the pages before it, and pages are let go of last
    first; so the least recently used cached page never has a cached page that continues it.

    Between `step`'s enter and exit the device may touch any page of the schedule; a page let go
    of in that time stays owned until the exit.
    """

    def __init__(self, num_pages: int, page_size: int, *, prefix_caching: bool = True) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._prefix_caching = prefix_caching
        self._prefixes = PrefixCache(page_size)
        self._num_owners = [0] * num_pages
        # Popped from the end: the page freed last is the likeliest to be in a CPU cache.
        self._free = list(reversed(range(num_pages)))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._tables: set[PageTable] = set()
        self._parked: list[int] = []
        self._is_step_in_flight = False

    @property
    def num_free(self) -> int:
        """Pages without content."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Pages without an owner that the prefix cache keeps."""
        return len(self._cached)

    @property
    def num_owned(self) -> int:
        """Pages with at least one owner."""
        return self.num_pages - self.num_free - self.num_cached

    @property
    def free_pages(self) -> tuple[int, ...]:
        """The pages nothing may read before it has written them; tests fill them with garbage."""
        return tuple(self._free)

    def num_pages_for(self, num_tokens: int) -> int:
        """Return how many pages hold this many tokens."""
        return -(-num_tokens // self.page_size)

    def open(self, token_ids: Sequence[int], num_spare: int) -> PageTable | None:
        """Return a table with pages for all these tokens, its first ones taken from the cache.

        Args:
            token_ids: What the sequence holds; at least the last one is left to compute.
            num_spare: Pages that must remain for others.

        Returns:
            None where the pages do not suffice; nothing has changed then.
        """
        path = self._prefixes.find((), token_ids, len(token_ids) - 1)
        num_new = self.num_pages_for(len(token_ids)) - len(path)
        num_idle = sum(self._num_owners[node.page] == 0 for node in path)
        if num_new + num_spare > self.num_free + self.num_cached - num_idle:
            return None
        table = PageTable(pages=[node.page for node in path], path=path)
        for page in table.pages:
            self._own(page)
        table.pages.extend(self._take() for _ in range(num_new))
        self._tables.add(table)
        return table

    def extend(self, table: PageTable, num_tokens: int) -> bool:
        """Grow a table to hold this many tokens; return False and change nothing if it cannot."""
        num_new = self.num_pages_for(num_tokens) - len(table.pages)
        if num_new > self.num_free + self.num_cached:
            return False
        table.pages.extend(self._take() for _ in range(num_new))
        return True

    def truncate(self, table: PageTable, num_tokens: int) -> None:
        """Let go of the pages beyond those that hold this many tokens."""
        while len(table.pages) > self.num_pages_for(num_tokens):
            self._let_go(table.pages.pop())

    def adopt(self, table: PageTable, token_ids: Sequence[int], num_computed: int) -> int:
        """Replace pages still to be computed by ones that others have computed since.

        Requests with one prefix that arrive together compute it once, not once each.

        Returns:
            The number of tokens now computed; at least the last one is left.
        """
        for node in self._prefixes.find(table.path, token_ids, len(token_ids) - 1):
            self._share(table, node)
        return max(num_computed, len(table.path) * self.page_size)

    def publish(self, table: PageTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Make the full pages of the first ``num_computed`` tokens read-only and findable.

        Where another sequence has published the same tokens, its page takes the place of ours.
        """
        if not self._prefix_caching:
            return
        while len(table.path) < num_computed // self.page_size:
            page = table.pages[len(table.path)]
            node = self._prefixes.add(table.path, token_ids, page)
            if node.page == page:
                table.path.append(node)
            else:
                self._share(table, node)

    def close(self, table: PageTable) -> None:
        """Let go of a table's pages: full computed ones stay cached, the others become free."""
        self._tables.remove(table)
        for page in reversed(table.pages):
            self._let_go(page)
        table.pages.clear()
        table.path.clear()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark the time in which the device may touch pages of the schedule."""
        self._is_step_in_flight = True
        try:
            yield
        finally:
            self._is_step_in_flight = False
            parked, self._parked = self._parked, []
            for page in parked:
                self._let_go(page)

    def check(self) -> None:
        """Prove the books.

        Raises:
            AccountingError: They do not add up; the message names the first wrong entry.
        """
        self._check_states()
        self._check_owners()
        self._check_prefixes()

    def _own(self, page: int) -> None:
        if self._num_owners[page] == 0:
            del self._cached[page]
        self._num_owners[page] += 1

    def _take(self) -> int:
        page = self._free.pop() if self._free else self._evict()
        self._num_owners[page] = 1
        return page

    def _evict(self) -> int:
        page, _ = self._cached.popitem(last=False)
        self._prefixes.remove(page)
        return page

    def _share(self, table: PageTable, node: CachedPage) -> None:
        """Put a cached page in the place of the table's own next one."""
        index = len(table.path)
        own = table.pages[index]
        self._own(node.page)
        table.pages[index] = node.page
        table.path.append(node)
        self._let_go(own)

    def _let_go(self, page: int) -> None:
        if self._is_step_in_flight:
            self._parked.append(page)
            return
        self._num_owners[page] -= 1
        if self._num_owners[page] > 0:
            return
        if page in self._prefixes:
            self._cached[page] = None
        else:
            self._free.append(page)

    def _check_states(self) -> None:
        owned = [page for page, count in enumerate(self._num_owners) if count > 0]
        listed = sorted([*self._free, *self._cached, *owned])
        if listed != list(range(self.num_pages)):
            states = Counter(listed)
            wrong = [
                p for p in {*listed, *range(self.num_pages)} if states[p] != (p < self.num_pages)
            ]
            raise _fault(f"page {wrong[0]} is in {states[wrong[0]]} states")
        for page in self._free:
            if page in self._prefixes:
                raise _fault(f"free page {page} is findable by prefix")

    def _check_owners(self) -> None:
        owners = [0] * self.num_pages
        held = [page for table in self._tables for page in table.pages]
        for page in [*held, *self._parked]:
            owners[page] += 1
        if owners != self._num_owners:
            wrong = next(p for p in range(self.num_pages) if owners[p] != self._num_owners[p])
            raise _fault(
                f"page {wrong} has {owners[wrong]} owners, books say {self._num_owners[wrong]}"
            )
        for table in self._tables:
            self._check_table(table)

    def _check_table(self, table: PageTable) -> None:
        if len(set(table.pages)) != len(table.pages):
            raise _fault(f"a table repeats a page: {table.pages}")
        if table.pages[: len(table.path)] != [node.page for node in table.path]:
            raise _fault("a table's pages differ from its cached path")
        for page in table.pages[len(table.path) :]:
            if self._num_owners[page] != 1 or page in self._prefixes:
                raise _fault(f"page {page} is shared but may be written")

    def _check_prefixes(self) -> None:
        """Prove that evicting from the front never takes a page before one that continues it."""
        rank = {page: index for index, page in enumerate(self._cached)}
        for page, later in self._prefixes.links():
            if self._num_owners[page] < self._num_owners[later]:
                raise _fault(f"page {later} has more owners than page {page} before it")
            if rank.get(page, self.num_pages) < rank.get(later, -1):
                raise _fault(f"page {page} would be evicted before {later} that continues it")


def _fault(sentence: str) -> AccountingError:
    return AccountingError(f"KV page books: {sentence}")
