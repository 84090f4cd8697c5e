"""When a run counts as stalled."""

from random import Random

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import GiveUpCell, RunCell, WindowSettings
from raylog.client.parallel.policy import RetryPolicy
from raylog.client.parallel.window import Window
from raylog.wire.record import Record

KEY = TopicPartition("t", 0)


def test_the_start_of_a_worker_is_no_part_of_a_run() -> None:
    settings = WindowSettings(group="g", cells=2, retry=RetryPolicy(stall_timeout_ms=1_000))
    window = Window(settings, Random(1))
    window.assigned(KEY, 0)
    records = [Record(offset, 0, b"%d" % offset, b"v", ()) for offset in range(2)]
    runs = [one for one in window.fetched(KEY, records, 0, 0) if isinstance(one, RunCell)]
    slow, quick = (run.cell_id for run in runs)
    window.waits_for_worker(slow)
    assert window.next_due_ms == 1_000
    assert window.tick(1_000, 0) == [GiveUpCell(quick)]
    assert window.next_due_ms == float("inf"), "a worker that starts is waited for"
    window.began(slow, 5_000)
    assert window.tick(5_999, 0) == []
    assert window.tick(6_000, 0) == [GiveUpCell(slow)]
    window.began(slow, 6_500)
    assert window.next_due_ms == float("inf"), "it was given up before it began"
