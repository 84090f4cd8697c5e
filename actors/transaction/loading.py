"""Loads a shard from its partition's log."""

from __future__ import annotations

from raylog.actors.common_messages import Route
from raylog.actors.coordination.reading import read_claimed
from raylog.actors.coordination.rules import records
from raylog.actors.runtime.base import Link, Runtime
from raylog.actors.transaction.rules.shard import TransactionShard
from raylog.wire.bulk import batches
from raylog.wire.internal.blobs import TRANSACTIONS_TOPIC


async def load(runtime: Runtime, link: Link, route: Route, shard: TransactionShard) -> int:
    """Load a new shard from the log; return the offset at which the log ended.

    Raises the replica's errors, PeerLost, and OSError.
    """

    def take(data: memoryview, offset: int) -> int:
        for header, found in batches(data):
            if not header.is_control:
                for at, key, value, _ in found:
                    if at < offset:
                        continue
                    record = records.decode(TRANSACTIONS_TOPIC, key, value)
                    if record is not None:
                        shard.replay(record).commit()
            offset = header.next_offset
        return offset

    return await read_claimed(runtime, link, route, take)
