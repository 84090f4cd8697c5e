"""Offsets of clocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.loadtest.clocks import Exchange, Offset, offset_of


def test_the_quickest_answer_counts() -> None:
    slow = Exchange(asked_us=1_000, answered_us=9_000, heard_us=5_000)
    quick = Exchange(asked_us=10_000, answered_us=15_100, heard_us=10_200)
    assert offset_of([slow, quick, slow]) == Offset(5_000, 100)


@given(
    offset_us=st.integers(-(10**12), 10**12),
    ways=st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20),
)
def test_the_true_offset_is_within_the_uncertainty(
    offset_us: int, ways: list[tuple[int, int]]
) -> None:
    exchanges = []
    now_us = 1_700_000_000_000_000
    for there_us, back_us in ways:
        answered_us = now_us + there_us + offset_us
        exchanges.append(Exchange(now_us, answered_us, now_us + there_us + back_us))
        now_us += 10**9
    found = offset_of(exchanges)
    assert abs(found.offset_us - offset_us) <= found.uncertainty_us
    assert found.uncertainty_us <= min((there + back + 1) // 2 for there, back in ways)
