"""What pairs of runs say about the cost of metrics, and which code the benchmark removes."""

from __future__ import annotations

import dis

import pytest

from bench.metrics_cost import Figures, Pair, cells_of
from bench.metrics_load import BATCH_RECORDS, LOADS, batch_of, frame_of, produce_of
from bench.uncounted import all_variants, variants_of
from raylog.actors.gateway.counts import ApiCounts


def figures(*starts: list[float]) -> Figures:
    return Figures([[Pair(1_000 * ratio, 1_000) for ratio in start] for start in starts])


def test_the_ratio_is_the_median_over_the_pairs_of_all_starts() -> None:
    found = figures([1.0, 1.25, 9.0], [1.25, 1.5])
    assert found.ratio == 1.25
    assert found.request_ns == 1_250
    assert found.counting_ns == pytest.approx(250)


def test_the_interval_holds_the_ratio_and_is_a_point_where_all_pairs_agree() -> None:
    assert figures([1.01] * 5, [1.01] * 5).interval() == (1.01, 1.01)
    low, high = figures([1.0, 1.1, 1.2], [1.0, 1.1, 1.2]).interval()
    assert 1.0 <= low <= 1.1 <= high <= 1.2
    assert low < high


def test_the_interval_is_as_wide_as_starts_differ() -> None:
    """Many pairs of a start do not make up for a start that is different."""
    low, high = figures([1.0] * 100, [1.2] * 100).interval()
    assert (low, high) == (1.0, 1.2)


def test_a_row_has_the_cost_of_a_request_and_of_a_record() -> None:
    usual, nothing = LOADS[0], next(load for load in LOADS if not load.records)
    found = Figures([[Pair(150_000, 120_000)] * 3])
    assert cells_of(usual, found)[1:] == ["150", "150.0", "30,000", "200.0", "1.250", "1.250–1.250"]
    assert cells_of(nothing, found)[4] == ""


def test_loads_have_names_of_their_own_and_usual_batches_fill_batch_size() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)
    assert 16_000 < len(batch_of(BATCH_RECORDS)) < 17_000
    batch = batch_of(1)
    assert batch in frame_of(produce_of("t", batch), 9)


def test_uncounted_variant_only_lacks_the_counting() -> None:
    for one in all_variants():
        counted = {instruction.argval for instruction in dis.get_instructions(one.counted)}
        left = {instruction.argval for instruction in dis.get_instructions(one.uncounted)}
        assert (
            one.counted.co_varnames[: one.counted.co_argcount]
            == (one.uncounted.co_varnames[: one.uncounted.co_argcount])
        )
        assert len(one.uncounted.co_code) < len(one.counted.co_code), one.function
        assert not left & {"answered", "waited", "bytes_in", "bytes_out", "records_in"}, counted


def test_a_line_that_is_gone_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"ApiCounts\.answered has no lines .*'count\(\)'"):
        variants_of(ApiCounts.answered, ["count()"])
