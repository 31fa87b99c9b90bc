"""Orders of operators: whoever merges whom, and however often, all hold the same in the end."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.operators.orders import DrainWord, Orders, StandingPin

PINS = [
    StandingPin(f"p{index}", "plain", ("*",), "ana", "why", float(index), 100.0 + index)
    for index in range(4)
]
pins = st.lists(
    st.tuples(st.sampled_from(PINS), st.booleans()), max_size=4, unique_by=lambda each: each[0]
)
words = st.builds(DrainWord, st.sampled_from([0.0, 1.0, 2.0]), st.booleans(), st.just("ana"))


@st.composite
def orders(draw: st.DrawFn) -> Orders:
    found = Orders(drain=draw(words))
    for pin, is_lifted in draw(pins):
        found = found.with_pin(pin)
        found = found.without_pin(pin.pin_id) if is_lifted else found
    return found


@given(orders(), orders(), orders(), st.sampled_from([0.0, 101.5, 200.0]))
def test_the_order_and_number_of_merges_are_of_no_account(one, two, three, now_s):
    left = one.merged(two, now_s).merged(three, now_s)
    right = three.merged(two.merged(one, now_s), now_s)
    assert left == right
    assert left.merged(two, now_s) == left


@given(orders(), orders())
def test_what_anybody_lifted_holds_nowhere_and_what_is_over_is_forgotten(one, two):
    merged = one.merged(two, 101.5)
    lifted = {pin.pin_id for pin in (*one.pins, *two.pins) if pin.is_lifted}
    known = {pin.pin_id for pin in (*one.pins, *two.pins) if pin.expires_at_s > 101.5}
    assert {pin.pin_id for pin in merged.pins} == known
    assert {pin.pin_id for pin in merged.live_pins(101.5)} == known - lifted
