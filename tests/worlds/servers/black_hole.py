"""A broker whose address neither accepts nor refuses connections."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.connection import Connection
from raylog.client.core import Core
from raylog.client.errors import ConnectionLost
from raylog.client.streams import AsyncIo, StreamProtocol


class BlackHole:
    """Connections to one broker neither succeed nor fail until `opened` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port = -1
        self.opened = asyncio.Event()
        self.waiting = 0
        connect = AsyncIo.connect

        async def connected(
            io: AsyncIo,
            host: str,
            port: int,
            connection: Connection,
            timeout_ms: float,
            tls: ssl.SSLContext | None = None,
        ) -> StreamProtocol:
            if port == self.port:
                self.waiting += 1
                await self.opened.wait()
            return await connect(io, host, port, connection, timeout_ms, tls)

        monkeypatch.setattr(AsyncIo, "connect", connected)

    def swallow(self, core: Core, key: TopicPartition) -> None:
        """Make the leader of a partition unreachable, and break the connections to it."""
        self.port = core.cluster.nodes[core.cluster.leader_of(key)].port
        for channel in core._channels.values():
            if channel.address[1] == self.port:
                channel.end(ConnectionLost("gone"))
                channel.transport.close()
