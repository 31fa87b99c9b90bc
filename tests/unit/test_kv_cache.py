"""Pages: shared, read-only, evicted in order, given back once, never before the step is over."""

import pytest

from dflash.errors import AccountingError
from dflash.kv_cache import KVCache, PageTable

IDS = tuple(range(100, 200))


def opened(kv_cache: KVCache, token_ids: tuple[int, ...]) -> PageTable:
    table = kv_cache.open(token_ids, num_spare=0)
    assert table is not None
    kv_cache.check()
    return table


def computed(kv_cache: KVCache, token_ids: tuple[int, ...]) -> PageTable:
    table = opened(kv_cache, token_ids)
    kv_cache.publish(table, token_ids, len(token_ids))
    kv_cache.check()
    return table


def test_a_hit_leaves_the_last_token_to_compute():
    kv_cache = KVCache(num_pages=8, page_size=4)
    kv_cache.close(computed(kv_cache, IDS[:8]))
    assert len(opened(kv_cache, IDS[:8]).path) == 1
    assert len(opened(kv_cache, IDS[:9]).path) == 2


def test_a_resent_prompt_of_ten_pages_hits_nine():
    kv_cache = KVCache(num_pages=12, page_size=16)
    prompt = tuple(range(160))
    kv_cache.close(computed(kv_cache, prompt))
    assert len(opened(kv_cache, prompt).path) == 9


def test_only_full_pages_of_computed_tokens_are_found():
    kv_cache = KVCache(num_pages=8, page_size=4)
    table = opened(kv_cache, IDS[:12])
    kv_cache.publish(table, IDS, 7)
    kv_cache.close(table)
    kv_cache.check()
    assert (kv_cache.num_cached, kv_cache.num_free) == (1, 7)
    assert len(opened(kv_cache, IDS[:12]).path) == 1


def test_equal_pages_after_different_prefixes_are_not_shared():
    kv_cache = KVCache(num_pages=8, page_size=4)
    same = (7, 7, 7, 7)
    first = computed(kv_cache, IDS[:4] + same)
    second = computed(kv_cache, IDS[4:8] + same)
    assert set(first.pages).isdisjoint(second.pages)


def test_two_that_compute_one_prefix_end_with_one_copy():
    kv_cache = KVCache(num_pages=8, page_size=4)
    first, second = opened(kv_cache, IDS[:8]), opened(kv_cache, IDS[:8])
    assert set(first.pages).isdisjoint(second.pages)
    for table in (first, second):
        kv_cache.publish(table, IDS, 8)
        kv_cache.check()
    assert first.pages == second.pages
    assert kv_cache.num_owned == 2


def test_pages_computed_by_another_meanwhile_are_adopted():
    kv_cache = KVCache(num_pages=8, page_size=4)
    first, second = opened(kv_cache, IDS[:12]), opened(kv_cache, IDS[:12])
    kv_cache.publish(first, IDS, 12)
    assert kv_cache.adopt(second, IDS[:12], 1) == 8
    kv_cache.check()
    assert second.pages[:2] == first.pages[:2]
    assert second.pages[2] != first.pages[2]


def test_nothing_is_shared_where_caching_is_off():
    kv_cache = KVCache(num_pages=8, page_size=4, prefix_caching=False)
    first = computed(kv_cache, IDS[:8])
    second = opened(kv_cache, IDS[:9])
    assert kv_cache.adopt(second, IDS[:9], 6) == 6
    kv_cache.close(first)
    kv_cache.close(second)
    assert kv_cache.num_free == 8


def test_the_least_recently_used_prefix_is_evicted_from_its_end():
    kv_cache = KVCache(num_pages=4, page_size=4)
    kv_cache.close(computed(kv_cache, IDS[:8]))
    kv_cache.close(computed(kv_cache, IDS[50:58]))
    kv_cache.close(opened(kv_cache, (1, 2, 3)))
    assert len(opened(kv_cache, IDS[:9]).path) == 1
    assert len(opened(kv_cache, IDS[50:54]).path) == 0


def test_a_failed_open_or_extend_changes_nothing():
    kv_cache = KVCache(num_pages=4, page_size=4)
    kv_cache.close(computed(kv_cache, IDS[:8]))
    table = opened(kv_cache, (1, 2))
    held = list(table.pages)
    assert kv_cache.open(IDS[:16], num_spare=0) is None
    assert kv_cache.open(IDS[:9], num_spare=1) is None
    assert not kv_cache.extend(table, 17)
    kv_cache.check()
    assert table.pages == held
    assert (kv_cache.num_free, kv_cache.num_cached) == (1, 2)


def test_a_page_let_go_in_a_step_is_not_lent_before_the_step_is_over():
    kv_cache = KVCache(num_pages=2, page_size=4)
    table = opened(kv_cache, IDS[:8])
    with kv_cache.step():
        kv_cache.close(table)
        kv_cache.check()
        assert kv_cache.num_owned == 2
        assert kv_cache.open((1, 2), num_spare=0) is None
    kv_cache.check()
    assert kv_cache.num_free == 2


def test_pages_go_back_even_where_the_step_fails():
    kv_cache = KVCache(num_pages=2, page_size=4)
    table = opened(kv_cache, IDS[:8])

    def fail_in_a_step() -> None:
        with kv_cache.step():
            kv_cache.close(table)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_a_step()
    assert kv_cache.num_free == 2


def test_a_page_cannot_be_given_back_twice():
    kv_cache = KVCache(num_pages=2, page_size=4)
    table = opened(kv_cache, IDS[:8])
    kv_cache.close(table)
    with pytest.raises(KeyError):
        kv_cache.close(table)


def lose_a_page(kv_cache: KVCache, table: PageTable) -> None:
    table.pages.pop()


def repeat_a_page(kv_cache: KVCache, table: PageTable) -> None:
    lost, table.pages[-1] = table.pages[-1], table.pages[-2]
    kv_cache._num_owners[table.pages[-2]] += 1
    kv_cache._num_owners[lost] = 0
    kv_cache._free.append(lost)


def write_where_others_read(kv_cache: KVCache, table: PageTable) -> None:
    table.path.pop()


def swap_shared_pages(kv_cache: KVCache, table: PageTable) -> None:
    table.pages[0], table.pages[1] = table.pages[1], table.pages[0]


def free_an_owned_page(kv_cache: KVCache, table: PageTable) -> None:
    kv_cache._free.append(table.pages[0])


def miscount_owners(kv_cache: KVCache, table: PageTable) -> None:
    kv_cache._num_owners[table.pages[-1]] += 1


def own_a_page_without_those_before_it(kv_cache: KVCache, table: PageTable) -> None:
    kv_cache._tables.add(PageTable(pages=[table.pages[1]], path=[table.path[1]]))
    kv_cache._num_owners[table.pages[1]] += 1


def evict_from_the_front_of_a_prefix(kv_cache: KVCache, table: PageTable) -> None:
    first = table.pages[0]
    kv_cache.close(table)
    kv_cache._cached.move_to_end(first, last=False)


def list_a_page_of_another_pool(kv_cache: KVCache, table: PageTable) -> None:
    kv_cache._free.append(8)


def keep_a_free_page_findable(kv_cache: KVCache, table: PageTable) -> None:
    first = table.pages[0]
    kv_cache.close(table)
    del kv_cache._cached[first]
    kv_cache._free.append(first)


@pytest.mark.parametrize(
    ("break_books", "fault"),
    [
        (lose_a_page, "has 0 owners, books say 1"),
        (repeat_a_page, "a table repeats a page"),
        (write_where_others_read, "is shared but may be written"),
        (swap_shared_pages, "differ from its cached path"),
        (free_an_owned_page, "is in 2 states"),
        (miscount_owners, "owners, books say 2"),
        (own_a_page_without_those_before_it, "has more owners than page"),
        (evict_from_the_front_of_a_prefix, "would be evicted before"),
        (list_a_page_of_another_pool, "page 8 is in 1 states"),
        (keep_a_free_page_findable, "is findable by prefix"),
    ],
)
def test_the_check_names_what_is_wrong(break_books, fault: str):
    kv_cache = KVCache(num_pages=8, page_size=4)
    table = opened(kv_cache, IDS[:12])
    kv_cache.publish(table, IDS, 8)
    break_books(kv_cache, table)
    with pytest.raises(AccountingError, match=fault):
        kv_cache.check()
