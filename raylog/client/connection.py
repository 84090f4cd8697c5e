"""One connection's protocol without its socket: requests to bytes, bytes to answers.

Brokers answer a connection's requests in their order, so the pending ones form a queue. Input is
read straight into the buffer that `writable` offers: small frames share a scratch buffer, a large
frame gets a buffer of its own, of which decoded records stay views.
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
"""Longest first answer believed: it tells versions."""
_TLS_ALERT = b"\x15\x03"
"""How a listener with TLS begins its refusal of what is not TLS."""
RESPONSE_BYTES_MAX = 512 * 1024 * 1024
"""Longest answer believed; a longer one is no Kafka broker's (HTTP reads as 1.2 GB)."""


class Pending(Generic[R]):
    """A request on its way; once `done`, `result` gives the answer or raises what went wrong."""

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
        """Whether an answer or a failure is here."""
        return self.response is not None or self.failure is not None

    def result(self) -> R:
        """The answer; raises the failure."""
        if self.failure is not None:
            raise self.failure
        assert self.response is not None, "result of a request that is still pending"
        return self.response

    def take(self, response: object) -> None:
        """Complete with an answer."""
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
        """Why the connection is of no more use."""
        self.answer_count = 0
        """Answers so far."""
        self._next_correlation_id = 0
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled = 0
        """Bytes of the scratch buffer that hold unread input."""
        self._frame: bytearray | None = None
        """A frame larger than the scratch buffer, being filled."""
        self._frame_filled = 0

    def request(
        self, request: object, expected: type[R], version: int, deadline_ms: float
    ) -> tuple[Pending[R], list[Buffer]]:
        """Encode a request: its pending answer and the bytes to send."""
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
        """Take back a request that the broker will never answer (acks=0)."""
        assert self.pending[-1] is pending, "only the newest request can be taken back"
        self.pending.pop()

    def writable(self) -> memoryview:
        """Where the next input goes; at least one byte."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def written(self, count: int) -> None:
        """Take `count` bytes that were put into the buffer of `writable`."""
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
        """Fail all that is pending; the connection takes no more requests."""
        if self.ended is None:
            self.ended = reason
        while self.pending:
            self.pending.popleft().failure = self.ended

    def is_overdue(self, now_ms: float) -> bool:
        """Whether the oldest request's time is over (answers come in order)."""
        return bool(self.pending) and now_ms >= self.pending[0].deadline_ms

    def _read_scratch(self) -> None:
        """Take whole frames out of the scratch buffer; move a large one's start to its own."""
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
        """Say what a length that no broker sends may come from."""
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
        """Give a frame that does not fit the scratch buffer a buffer of its own."""
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
