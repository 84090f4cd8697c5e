"""A broker restarts and partitions move under load: a short run of `make rolling`."""

from pathlib import Path

import pytest

from tests.checker.workload import Plan
from tests.cluster.rolling import rolling
from tests.support.ray_clusters import Note

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
KEPT = Plan(
    producers=1, consumers=1, members=1, partitions=3, replicas=3, min_insync=2, records_per_s=100
)
MOVED = Plan(
    producers=1,
    consumers=1,
    members=0,
    partitions=4,
    replicas=2,
    record_bytes=1_000,
    records_per_s=100,
    seed=2,
)


@pytest.mark.long
def test_a_broker_restarts_and_partitions_move(tmp_path: Path, note: Note) -> None:
    report, _ = rolling(tmp_path, 1, 4, lambda _: None, kept=KEPT, moved=MOVED)
    for name, longest_s in report.longest_s.items():
        note(name.replace(" ", "_"), longest_s)
    assert report.failures == []
