"""Three brokers against three: the targets, and which process used the time."""

from bench.replicated import Watched, broken, programme, roles_in, spent_lines
from bench.table import Row
from bench.workloads import THROUGHPUT, Metric

P50 = Metric("acknowledged_p50", "ms", "lower")


def test_a_promise_that_is_not_kept_is_named() -> None:
    rows = [
        Row("fast", THROUGHPUT, [(100.0, 50.0)]),
        Row("slow", THROUGHPUT, [(100.0, 49.0)]),
        Row("prompt", P50, [(1.0, 2.0)]),
        Row("late", P50, [(1.0, 2.1)]),
        Row("rarely late", Metric("p99", "ms", "lower"), [(1.0, 9.0)]),
    ]
    assert broken(rows) == [
        "slow: 0.49 x the throughput, 0.5 wanted",
        "late: 2.10 x the acknowledged_p50, at most 2.0 wanted",
    ]


def test_processes_are_called_by_the_roles_that_live_there() -> None:
    actors: list[dict[str, object]] = [
        {"role": "replica", "pid": 7},
        {"role": "gateway", "pid": 7},
        {"role": "broker", "pid": 8},
        {"role": "gateway", "pid": 0},
    ]
    assert roles_in(actors) == {7: "gateway+replica", 8: "broker"}


def test_a_sized_workload_is_watched_together_with_the_first() -> None:
    watched = Watched(programme()[0])
    again = watched.sized(1_000.0, 100.0)
    again.spent["ours"] = {"broker": 0.01, "replica": 2.0, "client": 3.0}
    again.megabytes["ours"] = 1_000.0
    assert spent_lines([watched])[2:] == [
        f"| {watched.name} | ours | client 3.0, replica 2.0 for 1,000 MB |"
    ]


def test_all_of_the_programme_is_kept_three_times() -> None:
    assert all("acks=all RF 3 1024 B" in workload.name for workload in programme())
