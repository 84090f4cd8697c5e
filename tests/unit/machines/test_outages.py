"""How long partitions were not written, computed from a history."""

from __future__ import annotations

from tests.checker.operations import Outcome, Partition, Send
from tests.machines.outages import Span, outages

A, B = ("t", 0), ("t", 1)


def written(partition: Partition, at_s: float, outcome: Outcome = Outcome.OK) -> Send:
    at_ns = int(at_s * 1e9)
    return Send("p", partition, f"{partition}{at_s}", at_ns - 1, at_ns, outcome)


def span(name: str, began_s: int, ended_s: int, limit_s: float | None = None) -> Span:
    return Span(name, began_s * 10**9, ended_s * 10**9, limit_s)


def test_the_longest_silence_of_any_partition_counts() -> None:
    sends = [written(A, at) for at in (0, 1, 2, 3, 8, 9, 10)]
    sends += [written(B, at) for at in range(11)]
    (found,) = outages(reversed(sends), [span("cut", 0, 10, 4.0)])
    assert (found.seconds, found.partition, found.is_too_long) == (5.0, A, True)


def test_unacknowledged_write_does_not_end_an_outage() -> None:
    sends = [written(A, 0), written(A, 2, Outcome.UNKNOWN), written(A, 4)]
    (found,) = outages(sends, [span("cut", 0, 10)])
    assert found.seconds == 6.0, "from the last one until the end of all steps"
    assert not found.is_too_long, "without a limit it is only stated"


def test_a_silence_counts_once_for_the_step_of_its_middle() -> None:
    sends = [written(A, at) for at in (0, 1, 9, 10, 11, 12)]
    found = outages(sends, [span("first", 0, 3, 2.0), span("second", 3, 12, 15.0)])
    assert [one.seconds for one in found] == [1.0, 8.0]
    assert not any(one.is_too_long for one in found)


def test_a_partition_that_is_never_written_again_is_a_breach() -> None:
    found = outages([written(A, 1)], [span("cut", 0, 9, 15.0), span("after", 9, 40, 2.0)])
    assert found[1].is_too_long
    assert found[1].seconds == 39.0
