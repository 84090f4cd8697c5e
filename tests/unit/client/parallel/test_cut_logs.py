"""Partitions whose log was truncated, or that belong to another topic now."""

from random import Random

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import CommitPoint, Done, RunCell, WindowSettings
from raylog.client.parallel.window import Window
from raylog.wire.record import Record

KEY = TopicPartition("t", 0)


def ran(window: Window, first: int, behind: int) -> int:
    """Fetch records, and let all runs that come of it go well; how many records were run."""
    records = [Record(offset, 0, None, b"v", ()) for offset in range(first, behind)]
    effects, count = window.fetched(KEY, records, 1, 1), 0
    while runs := [one for one in effects if isinstance(one, RunCell)]:
        effects = []
        for run in runs:
            count += len(run.records)
            effects += window.ran(run.cell_id, Done(()), 1, 1)
    return count


def test_a_partition_that_begins_anew_goes_on_and_is_committed() -> None:
    window = Window(WindowSettings(group="g", cells=4), Random(1))
    window.assigned(KEY, 100)
    assert ran(window, 100, 105) == 5
    window.committed(window.commit_points())
    assert ran(window, 0, 5) == 5
    assert window.assignment() == [KEY]
    assert ran(window, 5, 10) == 5
    assert window.commit_points() == [CommitPoint(KEY, 10, "")]
