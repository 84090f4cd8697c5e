"""One blocking connection that sends and receives message objects, for tests."""

from __future__ import annotations

import socket
from struct import Struct
from typing import Any

from raylog.wire.api import ApiKey
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.schema import layout_of

_LENGTH = Struct(">i")
CLIENT_ID = "wire-test"


class WireClient:
    """A connection to one broker."""

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its response."""
        return self.receive(*self.send(request, version))

    def send(self, request: Any, version: int) -> tuple[ApiKey, int]:
        """Send a request; return the arguments with which `receive` gets its response."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        self._correlation_id += 1
        frame = encode_request(api_key, version, self._correlation_id, CLIENT_ID, request)
        self._socket.sendall(b"".join(frame))
        return api_key, version

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """Return the next response; raise EOFError if the broker closes the connection."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return decode_response(api_key, version, self._exactly(length))[1]

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection; return False if it sends data instead."""
        return self._socket.recv(1) == b""

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise EOFError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
