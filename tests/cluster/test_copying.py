"""A copy job under kills (a short run of `make copying`), and what its judge finds."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from raylog.actors.names import TRANSACTION
from tests.copying.clients import COPIER, Plan, Work, coordinator_of
from tests.copying.fleet import CONFLUENT
from tests.copying.judge import Ends, TransactionJudge
from tests.support.ray_clusters import NewCluster, Note, RayCluster

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
PLAN = Plan(
    records=6_000,
    records_per_s=2_000,
    kinds=[CONFLUENT, CONFLUENT],
    partitions=4,
    replicas=1,
    min_insync=1,
    size=200,
    aborts=0.1,
)


class _Kills:
    """Kills a copier after some records, and the coordinator after some more."""

    def __init__(self, cluster: RayCluster, work: Work) -> None:
        self.done: list[str] = []
        self._cluster = cluster
        self._work = work

    def look(self) -> None:
        if not self.done and self._work.reader.seen > 500:
            self._work.fleet.kill(0)
            self.done.append("copier")
        elif self.done == ["copier"] and self._work.reader.seen > 2_000:
            assert coordinator_of(self._cluster.ports[0], TRANSACTION, f"{COPIER}-1") == 0
            self._cluster.kill(TRANSACTION)
            self.done.append("coordinator")


@pytest.mark.long
@pytest.mark.timeout(120)
def test_each_record_is_copied_once_whoever_is_killed(
    new_cluster: NewCluster, tmp_path: Path, note: Note
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    cluster.start()
    began = time.monotonic()
    work = Work(cluster.bootstrap, tmp_path, PLAN)
    kills = _Kills(cluster, work)
    ends = work.run(kills.look)
    note("copied_s", time.monotonic() - began)
    note("transactions", work.reader.judge.transactions)
    assert kills.done == ["copier", "coordinator"]
    assert ends.committed
    assert list(work.judge(ends)) == []


# ---- the judge ---------------------------------------------------------------------------


def judged(values: list[str], ends: Ends | None = None, sent: int = 4) -> list[str]:
    """What is wrong with a sink of one partition."""
    judge = TransactionJudge(1)
    for offset, value in enumerate(values):
        judge.take(0, offset, value.encode())
    judge.finish({0: sent}, ends or Ends())
    return [line.partition(":")[0] for line in judge.lines()]


CLEAN = ["0 a 2", "1 a 2", "2 b 2", "3 b 2"]


def test_nothing_is_wrong_with_a_clean_copy() -> None:
    assert judged(CLEAN, Ends(committed={"a": 2}, aborted={"c": 9})) == []


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([*CLEAN[:2], "2 b 1", "2 c 1", "3 d 1"], ["duplicate or out of order"]),
        ([CLEAN[1], CLEAN[0], *CLEAN[2:]], ["lost", "duplicate or out of order"]),
        ([*CLEAN[:2], "3 b 1"], ["lost"]),
        (CLEAN[:2], ["not copied"]),
        ([*CLEAN[:3], "3 c 1"], ["torn transaction"]),
    ],
)
def test_copy_errors_are_reported(values: list[str], wrong: list[str]) -> None:
    assert judged(values) == wrong


def test_ends_that_copiers_know_must_be_those_that_readers_saw() -> None:
    assert judged(CLEAN, Ends(aborted={"b": 2})) == ["aborted transaction read"]
    assert judged(CLEAN, Ends(committed={"c": 2})) == ["committed transaction not read"]


def test_an_offset_that_comes_again_is_reported() -> None:
    judge = TransactionJudge(1)
    judge.take(0, 5, b"0 a 2")
    judge.take(0, 5, b"1 a 2")
    judge.finish({0: 2}, Ends())
    assert list(judge.lines()) == ["offset given again: 0@5 after 5"]


def test_notes_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("committed a 2\nerror _TRANSPORT 1\naborted b 3\nerror _TRANSPORT 1\ncommi")
    assert Ends.load([path]) == Ends({"a": 2}, {"b": 3}, Counter(_TRANSPORT=2))
