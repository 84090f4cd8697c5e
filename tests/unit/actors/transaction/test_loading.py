"""What loading reads from the log: where it begins, and no markers."""

from __future__ import annotations

from pathlib import Path

from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.transaction.loading import load
from raylog.actors.transaction.rules.ids import ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.shard import TransactionShard
from raylog.actors.transaction.rules.state import State, Transaction
from raylog.wire.internal.transactions import (
    CoordinatorEpochKey,
    CoordinatorEpochValue,
    TransactionLogKey,
)
from tests.worlds.coordination.loading import batch, control, load_from


def stored(name: str, producer_id: int) -> LogRecord:
    """A record of a transactional id."""
    found = Transaction(name, State.EMPTY, producer_id, 3)
    return LogRecord(TransactionLogKey(transactional_id=name), found.to_value(1), 1)


def gone(name: str) -> LogRecord:
    """Its tombstone."""
    return LogRecord(TransactionLogKey(transactional_id=name), None)


def load_of(path: Path, start: int, *batches: bytearray) -> tuple[int, TransactionShard]:
    """Where a load from `start` on ends, and what it brings."""
    shard = TransactionShard(TransactionSettings(), ProducerIdPool())
    end = load_from(
        path, start, batches, lambda runtime, link, route: load(runtime, link, route, shard)
    )
    return end, shard


def test_records_before_the_log_start_are_skipped(tmp_path: Path) -> None:
    """A batch may begin before it."""
    first = batch(stored("a", 1), stored("b", 2), stored("c", 3))
    end, shard = load_of(tmp_path, 1, first, batch(stored("d", 4)))
    assert end == 4
    assert {name: one.producer_id for name, one in shard.ids.transactions.items()} == {
        "b": 2,
        "c": 3,
        "d": 4,
    }


def test_the_last_record_of_an_id_counts_and_a_tombstone_ends_it(tmp_path: Path) -> None:
    epoch = LogRecord(CoordinatorEpochKey(), CoordinatorEpochValue(coordinator_epoch=5))
    end, shard = load_of(
        tmp_path,
        0,
        batch(stored("a", 1), stored("b", 2)),
        batch(epoch, stored("a", 7), gone("b"), gone("never")),
    )
    assert end == 6
    assert [one.producer_id for one in shard.ids.transactions.values()] == [7]
    assert shard.ids.coordinator_epoch == 5


def test_markers_are_passed_over(tmp_path: Path) -> None:
    """Somebody may have added the topic to a transaction."""
    marker = control(committed=True, producer=(1, 0))
    end, shard = load_of(tmp_path, 0, batch(stored("a", 1)), marker)
    assert end == 2
    assert [*shard.ids.transactions] == ["a"]
