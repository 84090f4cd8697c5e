"""The protocol of one connection without its socket: requests to bytes, bytes to answers.

Brokers answer the requests of a connection in order, so pending requests form a queue. Input is
read straight into the buffer returned by `writable`. Small frames share a scratch buffer; a large
frame gets its own buffer, and the records decoded from it are views of that buffer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Generic, TypeVar

from raylog.client.errors import ClientError, NotKafka
from raylog.wire.api import ApiKey
from raylog.wire.errors import DecodeError
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.schema import layout_of

R = TypeVar("R")
Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
_SCRATCH_BYTES = 64 * 1024
_CORRELATION_MASK = 0x7FFFFFFF
_FIRST_BYTES_MAX = 1024 * 1024
"""Longest first answer accepted; it only lists API versions."""
_TLS_ALERT = b"\x15\x03"
"""First bytes of a TLS listener's reply to plaintext."""
RESPONSE_BYTES_MAX = 512 * 1024 * 1024
"""Longest answer accepted; brokers send no longer one (HTTP text would read as 1.2 GB)."""


class Pending(Generic[R]):
    """A request in flight. Once `done`, `result` returns the answer or raises the failure."""

    def __init__(
        self,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        expected: type[R],
        deadline_ms: float,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.expected = expected
        self.deadline_ms = deadline_ms
        """On the clock of `Io.now_ms`."""
        self.response: R | None = None
        self.failure: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether there is an answer or a failure."""
        return self.response is not None or self.failure is not None

    def result(self) -> R:
        """Return the answer, or raise the failure."""
        if self.failure is not None:
            raise self.failure
        assert self.response is not None, "result of a request that is still pending"
        return self.response

    def take(self, response: object) -> None:
        """Complete the request with its answer."""
        if isinstance(response, self.expected):
            self.response = response
        else:
            self.failure = NotKafka(
                f"expected {self.expected.__name__}, found {type(response).__name__}"
            )


class Connection:
    """Both directions of one connection."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.pending: deque[Pending[object]] = deque()
        self.ended: Exception | None = None
        """Why the connection ended; None while it is open."""
        self.answer_count = 0
        """Number of answers received so far."""
        self._next_correlation_id = 0
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled = 0
        """Number of unread bytes in the scratch buffer."""
        self._frame: bytearray | None = None
        """The frame being received, if it is larger than the scratch buffer."""
        self._frame_filled = 0

    def request(
        self, request: object, expected: type[R], version: int, deadline_ms: float
    ) -> tuple[Pending[R], list[Buffer]]:
        """Encode a request; return its pending answer and the bytes to send."""
        if self.ended is not None:
            raise self.ended
        api_key = layout_of(type(request)).api_key
        assert api_key is not None, f"{type(request).__name__} is not a request"
        correlation_id = self._next_correlation_id
        chunks = encode_request(api_key, version, correlation_id, self.client_id, request)
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        pending = Pending(api_key, version, correlation_id, expected, deadline_ms)
        self.pending.append(pending)  # type: ignore[arg-type]  # the queue holds answers of all types
        return pending, chunks

    def unanswered(self, pending: Pending[R]) -> None:
        """Remove a request that the broker will never answer (acks=0) from the queue."""
        assert self.pending[-1] is pending, "only the newest request can be taken back"
        self.pending.pop()

    def writable(self) -> memoryview:
        """Return the buffer for the next input; at least one byte."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def written(self, count: int) -> None:
        """Process `count` bytes that were written to the buffer of `writable`."""
        try:
            if self._frame is None:
                self._filled += count
                self._read_scratch()
            else:
                self._frame_filled += count
                if self._frame_filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._answer(memoryview(frame))
        except DecodeError as error:
            self.end(NotKafka(f"expected an answer that can be decoded: {error}"))
        except ClientError as error:
            self.end(error)

    def end(self, reason: Exception) -> None:
        """Fail all pending requests; the connection takes no more."""
        if self.ended is None:
            self.ended = reason
        while self.pending:
            self.pending.popleft().failure = self.ended

    def is_overdue(self, now_ms: float) -> bool:
        """Whether the oldest request is past its deadline (answers come in order)."""
        return bool(self.pending) and now_ms >= self.pending[0].deadline_ms

    def _read_scratch(self) -> None:
        """Take all whole frames from the scratch buffer, and start on a large one."""
        position = 0
        while self._filled - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._scratch, position)
            most = RESPONSE_BYTES_MAX if self.answer_count else _FIRST_BYTES_MAX
            if not _CORRELATION.size <= length <= most:
                raise self._not_kafka(most, length)
            start = position + _LENGTH.size
            if length > len(self._scratch) - _LENGTH.size:
                self._start_frame(start, length)
                return
            if start + length > self._filled:
                break
            self._answer(memoryview(bytes(self._scratch[start : start + length])))
            position = start + length
        if position:
            rest = self._scratch[position : self._filled]
            self._scratch[: len(rest)] = rest
            self._filled -= position

    def _not_kafka(self, most: int, length: int) -> NotKafka:
        """Return an error that says where a frame length that no broker sends may come from."""
        if not self.answer_count and self._scratch.startswith(_TLS_ALERT):
            return NotKafka(
                "expected an answer, found a TLS alert: this listener expects TLS "
                "(security.protocol SSL or SASL_SSL)"
            )
        return NotKafka(
            f"expected an answer of at most {most} bytes, found a length of {length}: is this a "
            "Kafka listener without TLS?"
        )

    def _start_frame(self, start: int, length: int) -> None:
        """Give a frame that does not fit the scratch buffer its own buffer."""
        self._frame = bytearray(length)
        self._frame_filled = self._filled - start
        self._frame[: self._frame_filled] = self._scratch[start : self._filled]
        self._filled = 0

    def _answer(self, frame: memoryview) -> None:
        """Complete the oldest request with one frame."""
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        if not self.pending or self.pending[0].correlation_id != correlation_id:
            asked = self.pending[0].correlation_id if self.pending else "nothing"
            raise NotKafka(f"expected the answer to request {asked}, found {correlation_id}")
        oldest = self.pending[0]
        _, response = decode_response(oldest.api_key, oldest.version, frame)
        self.answer_count += 1
        self.pending.popleft().take(response)
