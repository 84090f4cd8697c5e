"""A hand-written ApiVersions request: whether a broker is there, and what it serves."""

import socket
import struct
from time import monotonic, sleep

API_VERSIONS = 18
JOIN_GROUP = 11


def api_versions(address: str, timeout_s: float = 2.0) -> dict[int, tuple[int, int]]:
    """By API key, (lowest, highest version) of the broker at host:port.

    Raises OSError without one.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        body = struct.pack(">hhih", API_VERSIONS, 0, 1, -1)  # v0, correlation id 1, no client id
        connection.sendall(struct.pack(">i", len(body)) + body)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, length)
    _correlation_id, error, count = struct.unpack_from(">ihi", answer)
    if error != 0:
        raise ConnectionError(f"ApiVersions answered error {error}")
    rows = (struct.unpack_from(">hhh", answer, 10 + 6 * n) for n in range(count))
    return {key: (low, high) for key, low, high in rows}


def wait_until_ready(address: str, timeout_s: float) -> None:
    """Return as soon as a broker answers. Raises TimeoutError after `timeout_s`."""
    deadline = monotonic() + timeout_s
    while True:
        try:
            api_versions(address)
        except OSError as failure:
            if monotonic() > deadline:
                raise TimeoutError(f"no broker at {address} within {timeout_s:.0f} s") from failure
            sleep(0.02)
        else:
            return


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)
