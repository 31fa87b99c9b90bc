"""The book of the drafter's context: pages that are lent, shared, written, skipped."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dflash.drafters.context import ContextBook
from dflash.errors import AccountingError


def book() -> ContextBook:
    return ContextBook(num_pages=8, page_size=4)


def test_a_context_ends_where_the_first_page_is_not_full():
    context = book()
    context.written((5, 2, 7), 0, 10)
    assert context.length((5, 2, 7), 12) == 10
    assert context.length((5, 2, 7), 9) == 9
    assert context.length((5, 3, 7), 12) == 4
    assert context.length((), 0) == 0


def test_looking_on_from_what_is_known_finds_the_same():
    context = book()
    context.written((5, 2, 7), 0, 10)
    assert {context.length((5, 2, 7), 12, known) for known in range(11)} == {10}


def test_a_gap_is_refused_with_its_page():
    context = book()
    context.written((5, 2), 0, 5)
    with pytest.raises(
        AccountingError, match="page 2 holds 1 tokens and the next one written is 2"
    ):
        context.written((5, 2), 6, 7)


def test_a_page_lent_anew_holds_nothing():
    context = book()
    context.written((5, 2), 0, 8)
    context.lent([2])
    assert context.length((5, 2), 8) == 4


def test_writing_a_shared_page_again_takes_nothing_from_others():
    context = book()
    context.written((5, 2), 0, 8)
    context.written((5, 3), 0, 2)
    assert context.length((5, 2), 8) == 8


def test_what_is_skipped_is_void_from_there_on():
    context = book()
    context.written((5, 2, 7), 0, 12)
    context.skipped((5, 2, 7), 6, 9)
    assert context.length((5, 2, 7), 12) == 6
    context.written((5, 2, 7), 6, 8)
    assert context.length((5, 2, 7), 12) == 8


class Book(RuleBasedStateMachine):
    """Two sequences with a shared first page, against a record of every single slot."""

    tables = ((0, 1, 2), (0, 3, 4))

    def __init__(self) -> None:
        super().__init__()
        self.context = book()
        self.slots: dict[int, set[int]] = {page: set() for page in range(5)}

    def held(self, table: tuple[int, ...]) -> int:
        count = 0
        while count < 12 and count % 4 in self.slots[table[count // 4]]:
            count += 1
        return count

    @rule(table=st.sampled_from(tables), back=st.integers(0, 12), count=st.integers(1, 6))
    def write(self, table: tuple[int, ...], back: int, count: int) -> None:
        start = max(0, self.held(table) - back)
        end = min(start + count, 12)
        self.context.written(table, start, end)
        for position in range(start, end):
            self.slots[table[position // 4]].add(position % 4)

    @rule(table=st.sampled_from(tables), start=st.integers(0, 11), count=st.integers(1, 6))
    def skip(self, table: tuple[int, ...], start: int, count: int) -> None:
        end = min(start + count, 12)
        self.context.skipped(table, start, end)
        for index in range(start // 4, (end - 1) // 4 + 1):
            kept = start % 4 if index == start // 4 else 0
            self.slots[table[index]] &= set(range(kept))

    @rule(page=st.integers(0, 4))
    def lend(self, page: int) -> None:
        self.context.lent([page])
        self.slots[page].clear()

    @invariant()
    def lengths_are_those_of_the_slots(self) -> None:
        for table in self.tables:
            assert self.context.length(table, 12) == self.held(table)


TestBook = Book.TestCase
TestBook.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
