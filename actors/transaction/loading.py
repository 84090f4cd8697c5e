"""Reading a shard back from its partition's log."""

from __future__ import annotations

from raylog.actors.coordination import records
from raylog.actors.coordination.reading import read_claimed
from raylog.actors.ports import Route
from raylog.actors.runtime.base import Link, Runtime
from raylog.actors.transaction.shard import TransactionShard
from raylog.wire.bulk import batches
from raylog.wire.internal.blobs import TRANSACTIONS_TOPIC


async def load(runtime: Runtime, link: Link, route: Route, shard: TransactionShard) -> int:
    """Bring a new shard to the end of the log as it is now; returns that offset.

    Raises what the replica answers, PeerLost, and OSError.
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
