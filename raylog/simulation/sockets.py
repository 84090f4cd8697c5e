"""Connections of simulated clients: the gateway's own protocol over links instead of sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from raylog.actors.gateway.connection import ClientConnection
from raylog.actors.gateway.maps import SegmentMaps
from raylog.actors.runtime.base import Buffer, LinkRequest, PeerLost
from raylog.storage.disk import Disk
from raylog.wire.errors import NetworkException

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

CLIENT_REQUEST = "client request"
"""The kind of link requests whose payload is a Kafka request frame. The answer holds a response."""
_LENGTH_BYTES = 4


class DiskMaps(SegmentMaps):
    """Replaces maps of files by reads from the simulated disk, whose pages are all in memory."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def slice(self, directory: str, segment_id: str, position: int, length: int) -> memoryview:
        """The bytes at `position` of a segment. Raises FileNotFoundError if it is gone."""
        path = f"{directory}/{segment_id}"
        fd = self._disk.open(path)
        try:
            data = self._disk.pread(fd, length, position)
        finally:
            self._disk.close(fd)
        if len(data) != length:
            raise FileNotFoundError(f"{path} ends early")
        return memoryview(data)

    def forget(self, directories: Iterable[str]) -> None:
        """Do nothing: no map is kept."""


class SimSocket(asyncio.Transport):
    """The transport of a gateway's connection. Each complete frame answers the oldest request."""

    def __init__(self, client: str) -> None:
        super().__init__()
        self._client = client
        self._unread = bytearray()
        self._requests: deque[LinkRequest] = deque()
        self._closing = False

    def expect(self, request: LinkRequest) -> None:
        """Note that a request came in."""
        self._requests.append(request)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The client's address."""
        return (self._client, 0) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: this transport has no buffer."""

    def get_write_buffer_size(self) -> int:
        """Return 0: this transport has no buffer."""
        return 0

    def pause_reading(self) -> None:
        """Do nothing: clients wait for an answer before they send again."""

    def resume_reading(self) -> None:
        """Do nothing, like `pause_reading`."""

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send complete frames as answers."""
        self._unread += b"".join(list_of_data)
        while len(self._unread) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._unread[:_LENGTH_BYTES], "big")
            if len(self._unread) < end:
                return
            frame = bytes(self._unread[:end])
            del self._unread[:end]
            self._requests.popleft().reply(None, (frame,))

    def close(self) -> None:
        """Fail the requests that wait for an answer: the gateway has closed the connection."""
        self._closing = True
        while self._requests:
            self._requests.popleft().fail(NetworkException("the connection was closed"))

    abort = close


class SimConnection:
    """One client's connection to a gateway."""

    def __init__(self, gateway: GatewayActor, client: str, listener: str) -> None:
        self._socket = SimSocket(client)
        limit = gateway.settings.number("socket.request.max.bytes")
        self._connection = ClientConnection(gateway, limit, listener)
        self._connection.connection_made(self._socket)

    def received(self, request: LinkRequest) -> None:
        """Handle a complete request."""
        if self._socket.is_closing():
            raise NetworkException("the connection was closed")
        self._socket.expect(request)
        left = memoryview(request.payload)
        while left:
            room = self._connection.get_buffer(-1)
            taken = min(len(room), len(left))
            room[:taken] = left[:taken]
            left = left[taken:]
            self._connection.buffer_updated(taken)

    def lost(self) -> None:
        """Close the connection: the client or the network is gone."""
        self._connection.connection_lost(PeerLost("the link broke"))
