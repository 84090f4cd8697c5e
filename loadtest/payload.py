"""Values that carry who sent them, in which order and when, sealed with a CRC."""

import struct
from dataclasses import dataclass
from zlib import crc32

_HEAD = struct.Struct(">IIqd")  # CRC of what follows, sender, sequence, sent at (s, monotonic)


class BrokenPayloadError(Exception):
    """A value is not one that was sent."""


@dataclass(frozen=True, slots=True)
class Payload:
    """One value; `sequence` counts from 0 per sender, `sent_at` is the sender's clock in s."""

    sender: int
    sequence: int
    sent_at: float

    def seal(self, size: int) -> bytes:
        """The value, padded to `size` bytes where it is shorter."""
        body = _HEAD.pack(0, self.sender, self.sequence, self.sent_at)[4:]
        body += b"." * (size - 4 - len(body))
        return struct.pack(">I", crc32(body)) + body


def open_payload(value: bytes | None) -> Payload:
    """What a value says; BrokenPayloadError if a byte of it changed."""
    if value is None or len(value) < _HEAD.size:
        raise BrokenPayloadError(f"a value of {0 if value is None else len(value)} bytes")
    checksum, sender, sequence, sent_at = _HEAD.unpack_from(value)
    if crc32(value[4:]) != checksum:
        raise BrokenPayloadError(f"the CRC of record {sequence} of sender {sender} is wrong")
    return Payload(sender, sequence, sent_at)


class SequenceCheck:
    """Whether every sender's records arrive once and in order."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def take(self, payload: Payload) -> None:
        """BrokenPayloadError unless it follows the sender's last; the first seen may be any."""
        expected = self._next.get(payload.sender, payload.sequence)
        self._next[payload.sender] = payload.sequence + 1
        if payload.sequence != expected:
            raise BrokenPayloadError(
                f"sender {payload.sender}: record {payload.sequence}, expected {expected}"
            )
