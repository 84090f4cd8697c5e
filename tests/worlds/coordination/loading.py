"""Loads a coordinator's shard from batches in a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from raylog.actors.common_messages import Route, TopicId
from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.replica import messages as api
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.record import Record
from raylog.wire.records import assign, encode_batch, read_header
from tests.worlds.runtime import FakeLink, FakeRequest, FakeRuntime

SEGMENT = "log"


def batch(*found: LogRecord, producer: tuple[int, int] | None = None) -> bytearray:
    """Return one batch; it is transactional if `producer` gives an id and an epoch."""
    written = [Record(at, 0, *records.encode(one), []) for at, one in enumerate(found)]
    if producer is None:
        return bytearray(encode_batch(written))
    producer_id, epoch = producer
    return bytearray(
        encode_batch(written, producer_id=producer_id, producer_epoch=epoch, is_transactional=True)
    )


def control(*, committed: bool, producer: tuple[int, int]) -> bytearray:
    """Return the marker that ends a transaction."""
    producer_id, epoch = producer
    end = EndTxnMarker(committed, 0)
    return bytearray(
        encode_end_txn_marker(end, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=0)
    )


def load_from(
    path: Path,
    start: int,
    batches: Sequence[bytearray],
    load: Callable[[Any, Any, Route], Awaitable[int]],
) -> int:
    """Load these batches and return the end offset; the log starts at `start`, inside a batch."""
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

    async def main() -> int:
        link = FakeLink()
        link.answering = answer
        route = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", str(path))
        return await load(FakeRuntime(), link, route)

    return asyncio.run(main())
