"""Large histories: the work is proportional to the operations, and hidden anomalies are found."""

from cProfile import Profile

import pytest

from tests.checker.anomalies import Kind, Verdict
from tests.checker.check import check
from tests.checker.history import History
from tests.checker.large import large_history
from tests.checker.lines import Decoder, encode

SMALL = 5_000
LARGE = 50_000
LOST_EVERY = 1_500
GROWTH_MAX = 1.1
"""Of the work an operation, where there are ten times as many."""


def profiled(operations: int) -> tuple[Verdict, float, list[str]]:
    """The verdict, calls of functions (built-in ones too) an operation, and what is hidden."""
    lost: list[str] = []
    lines = [encode(one) for one in large_history(operations, 1, lost, LOST_EVERY)]
    decoder = Decoder()
    profile = Profile()
    verdict = profile.runcall(lambda: check(History.of(map(decoder.operation, lines))))
    calls = sum(entry.callcount for entry in profile.getstats())
    return verdict, calls / verdict.counts.operations, lost


@pytest.mark.timeout(600)  # it counts calls: 83 s of the clock where ten others want the processor
@pytest.mark.long
def test_work_grows_with_the_operations_and_lost_writes_are_found_among_many() -> None:
    _, few, _ = profiled(SMALL)
    verdict, many, lost = profiled(LARGE)
    assert verdict.counts.operations >= LARGE
    assert many <= GROWTH_MAX * few
    assert len(lost) > 10
    assert {one.values[0] for one in verdict.of(Kind.LOST_WRITE)} == set(lost)
    assert len(verdict.anomalies) == len(lost)
