"""Large histories: the work grows with the operations, and what was hidden is found."""

import sys
from types import FrameType

from tests.checker.anomalies import Kind
from tests.checker.check import check
from tests.checker.history import History
from tests.checker.large import large_history
from tests.checker.lines import Decoder, encode

SMALL = 10_000
LARGE = 50_000
GROWTH_MAX = 1.1
"""Of the work an operation, where there are five times as many."""


def calls_of_a_check(operations: int) -> tuple[int, int]:
    """Calls of functions, built-in ones included, in reading and checking; and operations."""
    lines = [encode(operation) for operation in large_history(operations, 1, [])]
    calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    decoder = Decoder()
    sys.setprofile(profile)
    try:
        verdict = check(History.of(decoder.operation(line) for line in lines))
    finally:
        sys.setprofile(None)
    assert verdict.valid, verdict.anomalies[:3]
    return calls, verdict.counts.operations


def test_work_grows_with_the_operations_and_not_faster() -> None:
    (few, small), (many, large) = calls_of_a_check(SMALL), calls_of_a_check(LARGE)
    assert many / large <= GROWTH_MAX * few / small


def test_lost_writes_are_found_among_many_operations() -> None:
    lost: list[str] = []
    verdict = check(History.of(large_history(LARGE, 2, lost, every=5_000)))
    assert len(lost) > 3
    assert {one.values[0] for one in verdict.of(Kind.LOST_WRITE)} == set(lost)
    assert len(verdict.anomalies) == len(lost)
