"""The page books after any history of opening, growing, computing, closing and steps."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dflash.kv_cache import KVCache, PageTable

NUM_PAGES, PAGE_SIZE = 12, 4
# Two ids only: prefixes meet and part all the time.
IDS = st.lists(st.integers(0, 1), min_size=1, max_size=24)


class Held:
    """A table with the ids it is for and how far they are computed."""

    def __init__(self, table: PageTable, token_ids: list[int]) -> None:
        self.table = table
        self.token_ids = token_ids
        self.num_computed = len(table.path) * PAGE_SIZE


class Books(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kv_cache = KVCache(NUM_PAGES, PAGE_SIZE)
        self.held: list[Held] = []
        # What the pages really hold, kept apart from the books.
        self.contents: dict[int, tuple[int, ...]] = {}
        self.step = None
        self.lent_in_step: set[int] = set()

    @rule(token_ids=IDS, num_spare=st.integers(0, 3))
    def open(self, token_ids: list[int], num_spare: int) -> None:
        before = (self.kv_cache.num_free, self.kv_cache.num_cached)
        table = self.kv_cache.open(token_ids, num_spare)
        if table is None:
            assert (self.kv_cache.num_free, self.kv_cache.num_cached) == before
            return
        for index in range(len(table.path)):
            held = self.contents[table.pages[index]]
            assert held == tuple(token_ids[: (index + 1) * PAGE_SIZE])
        assert len(table.path) * PAGE_SIZE < len(token_ids)
        self.held.append(Held(table, token_ids))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def grow(self, data: st.DataObject, more: list[int]) -> None:
        held = data.draw(st.sampled_from(self.held))
        pages = list(held.table.pages)
        if self.kv_cache.extend(held.table, len(held.token_ids) + len(more)):
            held.token_ids = held.token_ids + more
        else:
            assert held.table.pages == pages

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 9))
    def compute(self, data: st.DataObject, count: int) -> None:
        held = data.draw(st.sampled_from(self.held))
        held.num_computed = self.kv_cache.adopt(held.table, held.token_ids, held.num_computed)
        first = held.num_computed // PAGE_SIZE
        held.num_computed = min(held.num_computed + count, len(held.token_ids))
        for index in range(first, held.num_computed // PAGE_SIZE):
            page = held.table.pages[index]
            self.contents[page] = tuple(held.token_ids[: (index + 1) * PAGE_SIZE])
        self.kv_cache.publish(held.table, held.token_ids, held.num_computed)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.held.remove(held)
        pages = set(held.table.pages)
        self.kv_cache.close(held.table)
        if self.step is not None:
            self.lent_in_step |= pages

    @precondition(lambda self: self.step is None)
    @rule()
    def begin_step(self) -> None:
        self.step = self.kv_cache.step()
        self.step.__enter__()
        self.lent_in_step = {page for held in self.held for page in held.table.pages}

    @precondition(lambda self: self.step is not None)
    @rule()
    def end_step(self) -> None:
        self.step.__exit__(None, None, None)
        self.step = None

    @invariant()
    def books_add_up(self) -> None:
        self.kv_cache.check()

    @invariant()
    def no_page_of_a_step_in_flight_is_free(self) -> None:
        if self.step is not None:
            assert self.lent_in_step.isdisjoint(self.kv_cache.free_pages)

    @invariant()
    def every_computed_page_holds_its_tables_ids(self) -> None:
        for held in self.held:
            for index in range(len(held.table.path)):
                expected = tuple(held.token_ids[: (index + 1) * PAGE_SIZE])
                assert self.contents[held.table.pages[index]] == expected

    def teardown(self) -> None:
        if self.step is not None:
            self.end_step()
        for held in self.held:
            self.kv_cache.close(held.table)
        self.kv_cache.check()
        assert self.kv_cache.num_owned == 0
        whole = self.kv_cache.open([7] * (NUM_PAGES * PAGE_SIZE), 0)
        assert whole is not None, "every page must be obtainable when nobody holds one"


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
