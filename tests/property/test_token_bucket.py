"""Whatever is asked of a bucket, at whatever times, it gives what it says and never more."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.guard.token_bucket import TokenBucket

MINUTE_NS = 60_000_000_000

rates = st.integers(1, 10**9)
costs = st.integers(0, 10**7)
pauses = st.integers(0, 5 * MINUTE_NS)
start = st.integers(0, 2**62)


@given(rates, start, st.lists(st.tuples(pauses, costs), max_size=40))
def test_what_is_given_is_never_over_one_minutes_worth_and_what_came_back(
    per_minute: int, began_ns: int, asked: list[tuple[int, int]]
):
    bucket, now_ns, given_units, largest = TokenBucket.full(per_minute, began_ns), began_ns, 0, 0
    for pause_ns, cost in asked:
        now_ns += pause_ns
        if bucket.has(cost, now_ns):
            bucket = bucket.after(cost, now_ns)
            given_units += cost
            largest = max(largest, cost)
        assert 0 <= bucket.remaining(now_ns) <= per_minute
    came_back = per_minute * (now_ns - began_ns)
    # Only a cost that no full bucket holds leaves a debt.
    debt = max(0, largest - per_minute)
    assert given_units * MINUTE_NS <= (per_minute + debt) * MINUTE_NS + came_back


@given(rates, start, costs, pauses, costs)
def test_after_the_wait_it_says_it_has_it_and_a_nanosecond_before_it_has_not(
    per_minute: int, now_ns: int, used: int, pause_ns: int, cost: int
):
    bucket = TokenBucket.full(per_minute, now_ns).after(used, now_ns)
    now_ns += pause_ns
    wait_ns = bucket.wait_ns(cost, now_ns)
    assert bucket.has(cost, now_ns + wait_ns)
    assert wait_ns == 0 or not bucket.has(cost, now_ns + wait_ns - 1)


@given(rates, start, costs, st.lists(pauses, max_size=10))
def test_looking_often_brings_back_what_looking_once_does(
    per_minute: int, now_ns: int, used: int, pauses_ns: list[int]
):
    once = often = TokenBucket.full(per_minute, now_ns).after(used, now_ns)
    for pause_ns in pauses_ns:
        now_ns += pause_ns
        often = often.after(0, now_ns)
    assert often.wait_ns(per_minute, now_ns) == once.wait_ns(per_minute, now_ns)
    assert often.remaining(now_ns) == once.remaining(now_ns)


@given(rates, st.integers(10 * MINUTE_NS, 2**62), costs, pauses)
def test_a_clock_that_was_read_too_early_brings_nothing_back(
    per_minute: int, now_ns: int, cost: int, back_ns: int
):
    bucket = TokenBucket.full(per_minute, now_ns).after(per_minute, now_ns)
    early = bucket.after(cost, now_ns - back_ns)
    assert early.wait_ns(per_minute, now_ns) == bucket.after(cost, now_ns).wait_ns(
        per_minute, now_ns
    )


@given(rates, start, costs)
def test_what_is_given_back_is_there_again_and_never_more_than_it_holds(
    per_minute: int, now_ns: int, cost: int
):
    full = TokenBucket.full(per_minute, now_ns)
    assert full.after(cost, now_ns).after(-cost, now_ns) == full
    assert full.after(-cost, now_ns).remaining(now_ns) == per_minute


def test_a_unit_that_lacks_less_than_a_nanoseconds_worth_is_not_there_yet():
    bucket = TokenBucket(per_minute=7, level=MINUTE_NS - 1, at_ns=0)
    assert (bucket.has(1, 0), bucket.remaining(0), bucket.wait_ns(1, 0)) == (False, 0, 1)
    assert (bucket.has(1, 1), bucket.remaining(1)) == (True, 1)
