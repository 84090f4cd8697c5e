"""What a load takes of the log: records from where it begins, and no markers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from raylog.actors.coordination import records
from raylog.actors.coordination.step import LogRecord
from raylog.actors.ports import Route, TopicId
from raylog.actors.replica import api
from raylog.actors.transaction.ids import ProducerIdPool
from raylog.actors.transaction.loading import load
from raylog.actors.transaction.settings import TransactionSettings
from raylog.actors.transaction.shard import TransactionShard
from raylog.actors.transaction.state import State, Transaction
from raylog.wire.internal.transactions import (
    CoordinatorEpochKey,
    CoordinatorEpochValue,
    TransactionLogKey,
)
from raylog.wire.record import Record
from raylog.wire.records import (
    EndTxnMarker,
    assign,
    encode_batch,
    encode_end_txn_marker,
    read_header,
)
from tests.support.gateway_world import FakeLink, FakeRequest, FakeRuntime

SEGMENT = "log"


def stored(name: str, producer_id: int) -> LogRecord:
    """A record of a transactional id."""
    found = Transaction(name, State.EMPTY, producer_id, 3)
    return LogRecord(TransactionLogKey(transactional_id=name), found.to_value(1), 1)


def gone(name: str) -> LogRecord:
    """Its tombstone."""
    return LogRecord(TransactionLogKey(transactional_id=name), None)


def batch(*found: LogRecord) -> bytearray:
    """One batch."""
    return bytearray(
        encode_batch([Record(at, 0, *records.encode(one), []) for at, one in enumerate(found)])
    )


def load_of(path: Path, start: int, *batches: bytearray) -> tuple[int, TransactionShard]:
    """Where a load from `start` on ends, and what it brings."""
    data, end = bytearray(), 0
    for one in batches:
        assign(one, end, 0)
        data += one
        end += read_header(one).record_count
    (path / SEGMENT).write_bytes(data)

    def answer(request: FakeRequest) -> Any:
        match request.kind:
            case api.CLAIM:
                return end
            case api.OFFSET_FOR:
                return (start, -1, 0)
        topic_id, index, *_ = request.header.changes[0]
        return [(topic_id, index, 0, end, end, start, SEGMENT, 0, len(data))]

    async def main() -> tuple[int, TransactionShard]:
        link, shard = FakeLink(), TransactionShard(TransactionSettings(), ProducerIdPool())
        link.answering = answer
        route = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", str(path))
        reached = await load(FakeRuntime(), link, route, shard)  # type: ignore[arg-type]  # fakes
        return reached, shard

    return asyncio.run(main())


def test_what_stands_before_the_start_of_the_log_is_passed_over(tmp_path: Path) -> None:
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
    control = encode_end_txn_marker(
        EndTxnMarker(True, 0), producer_id=1, producer_epoch=0, timestamp_ms=0
    )
    end, shard = load_of(tmp_path, 0, batch(stored("a", 1)), bytearray(control))
    assert end == 2
    assert [*shard.ids.transactions] == ["a"]
