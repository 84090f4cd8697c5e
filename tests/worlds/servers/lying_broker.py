"""A broker that gives wrong answers: a proxy in front of a real broker that alters responses.

Each lie is told once, as small as possible, at a place that the test names. Lost and reordered
records are so for every reader. Everything else passes unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from raylog.wire.api import ApiKey
from raylog.wire.frame import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.record import Record
from raylog.wire.records import BatchHeader, decode_batch, encode_batch, encode_like, iter_batches

HOST = "127.0.0.1"
_LENGTH = Struct(">i")
_BATCH_BYTES_MAX = 1 << 24


class Place(NamedTuple):
    """The place of a record, in any topic."""

    partition: int
    offset: int


@dataclass
class Lies:
    """What the broker does wrong. A place is altered once it has been written to."""

    loses: Place | None = None
    """The record is missing."""
    tears: Place | None = None
    """A byte of the record's value is changed."""
    swaps: Place | None = None
    """The record and a neighbour change places; in a batch of one record, the next record does."""
    doubles: Place | None = None
    """The record is written twice, the second time a little later."""
    misplaces: Place | None = None
    """The batch with this record is acknowledged with an offset that is one too high."""
    ends_too_low: int | None = None
    """The number, from 1 on, of the ListOffsets response with an offset above 1,000 to halve."""
    late_ms: float = 0.0
    """How long acknowledgements are delayed, once..."""
    late_after_s: float = 0.0
    """...this long after the first..."""
    late_every_s: float = 0.0
    """...and then again at this interval; 0 for never."""
    count: int = 0
    """How many lies were told."""


class LyingBroker:
    """A proxy of one broker, which runs in its own thread during a `with` block."""

    def __init__(self, bootstrap: str, lies: Lies) -> None:
        host, _, port = bootstrap.partition(":")
        self._broker = (host, int(port))
        self.lies = lies
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._port = 0
        self._asked_offsets = 0
        self._acknowledging_since: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self._port}"

    def __enter__(self) -> LyingBroker:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, HOST, 0, limit=1 << 20))
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- passing on --------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        of_broker, to_broker = await asyncio.open_connection(*self._broker, limit=1 << 20)
        asked: deque[tuple[RequestHeader, Any]] = deque()
        back = asyncio.create_task(self._answer(of_broker, writer, asked))
        try:
            await self._ask(reader, to_broker, asked)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client or the test has ended
        finally:
            back.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, EOFError):
                await back
            to_broker.close()
            writer.close()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
        asked: deque[tuple[RequestHeader, Any]],
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            header, position = decode_request_header(frame)
            request = None
            if header.api_key is ApiKey.PRODUCE:  # with acks=0 there is no response
                request = decode_request(header, frame, position)
            if request is None or request.acks != 0:  # type: ignore[attr-defined]  # an object
                asked.append((header, request))
            to_broker.write(_LENGTH.pack(len(frame)) + frame)
            await to_broker.drain()

    async def _answer(
        self,
        of_broker: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: deque[tuple[RequestHeader, Any]],
    ) -> None:
        while True:
            frame = await _read_frame(of_broker)
            header, request = asked.popleft()
            change = self._change_of(header.api_key)
            if change is not None:
                assert isinstance(header.api_key, ApiKey)
                number, response = decode_response(header.api_key, header.api_version, frame)
                await change(response, header, request)
                frame = b"".join(
                    encode_response(header.api_key, header.api_version, number, response)
                )[4:]
            writer.write(_LENGTH.pack(len(frame)) + frame)
            await writer.drain()

    def _change_of(self, api_key: object) -> Callable[[Any, RequestHeader, Any], Any] | None:
        changes: dict[object, Callable[[Any, RequestHeader, Any], Any]] = {
            ApiKey.METADATA: self._of_metadata,
            ApiKey.FIND_COORDINATOR: self._of_coordinator,
            ApiKey.PRODUCE: self._of_produce,
            ApiKey.FETCH: self._of_fetch,
            ApiKey.LIST_OFFSETS: self._of_offsets,
        }
        return changes.get(api_key)

    # -- where it is -------------------------------------------------------------------------------

    async def _of_metadata(self, response: Any, _header: RequestHeader, _request: Any) -> None:
        for broker in response.brokers:
            broker.host, broker.port = HOST, self._port

    async def _of_coordinator(self, response: Any, header: RequestHeader, _request: Any) -> None:
        for one in response.coordinators if header.api_version >= 4 else [response]:
            if one.error_code == 0:
                one.host, one.port = HOST, self._port

    # -- lies ----------------------------------------------------------------------------------

    async def _of_produce(self, response: Any, header: RequestHeader, request: Any) -> None:
        await self._be_late()
        if self.lies.doubles is self.lies.misplaces is None:
            return
        for topic, sent in zip(response.responses, request.topic_data, strict=True):
            for answer, data in zip(topic.partition_responses, sent.partition_data, strict=True):
                if answer.error_code:
                    continue
                records = list(decode_batch(bytes(data.records), max_bytes=_BATCH_BYTES_MAX))
                written = range(answer.base_offset, answer.base_offset + len(records))
                lies = self.lies
                if _is_in(lies.doubles, answer.index, written):
                    assert lies.doubles is not None
                    record = records[lies.doubles.offset - written.start]
                    lies.doubles = None
                    await self._write_again(header, request, sent, answer.index, record)
                    lies.count += 1
                if _is_in(lies.misplaces, answer.index, written):
                    lies.misplaces = None
                    answer.base_offset += 1
                    lies.count += 1

    async def _write_again(
        self, header: RequestHeader, request: Any, topic: Any, index: int, record: Record
    ) -> None:
        again = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=request.timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_data=[
                        PartitionProduceData(index=index, records=encode_batch([record]))
                    ],
                )
            ],
        )
        reader, writer = await asyncio.open_connection(*self._broker)
        frame = encode_request(ApiKey.PRODUCE, header.api_version, 1, "twice", again)
        writer.write(b"".join(frame))
        await _read_frame(reader)
        writer.close()

    async def _be_late(self) -> None:
        lies, now = self.lies, time.monotonic()
        if not lies.late_ms:
            return
        if self._acknowledging_since is None:
            self._acknowledging_since = now
        since_s = now - self._acknowledging_since - lies.late_after_s
        if since_s < 0:
            return
        if lies.late_every_s:
            since_s %= lies.late_every_s
        left_s = lies.late_ms / 1_000 - since_s
        if left_s > 0:
            lies.count += 1
            await asyncio.sleep(left_s)

    async def _of_fetch(self, response: Any, _header: RequestHeader, _request: Any) -> None:
        lies = self.lies
        if lies.loses is lies.tears is lies.swaps is None:
            return
        for topic in response.responses:
            for of in topic.partitions:
                if of.records:
                    of.records = b"".join(self._altered(of.partition_index, bytes(of.records)))

    def _altered(self, partition: int, data: bytes) -> Iterator[bytes]:
        lies = self.lies
        end = 0
        for header, batch in iter_batches(data):
            end += header.size
            inside = range(header.base_offset, header.next_offset)
            if not any(
                _is_in(place, partition, inside) for place in (lies.loses, lies.tears, lies.swaps)
            ):
                yield bytes(batch)
                continue
            records = list(decode_batch(bytes(batch), max_bytes=_BATCH_BYTES_MAX))
            yield encode_like(header, self._lied(partition, header, records))
        yield data[end:]

    def _lied(self, partition: int, header: BatchHeader, records: list[Record]) -> list[Record]:
        lies = self.lies
        inside = range(header.base_offset, header.next_offset)
        if lies.loses is not None and _is_in(lies.loses, partition, inside):
            lies.count += 1
            return [record for record in records if record.offset != lies.loses.offset]
        if lies.tears is not None and _is_in(lies.tears, partition, inside):
            lies.count += 1
            at = lies.tears.offset - header.base_offset
            records[at] = records[at]._replace(value=_torn(records[at].value))
            return records
        assert lies.swaps is not None, "one of the three"
        if len(records) == 1:
            lies.swaps = lies.swaps._replace(offset=header.next_offset)
            return records
        lies.count += 1
        at = min(lies.swaps.offset - header.base_offset, len(records) - 2)
        one, other = records[at], records[at + 1]
        records[at] = one._replace(key=other.key, value=other.value)
        records[at + 1] = other._replace(key=one.key, value=one.value)
        return records

    async def _of_offsets(self, response: Any, _header: RequestHeader, _request: Any) -> None:
        answers = [of for topic in response.topics for of in topic.partitions]
        self._asked_offsets += any(of.offset > 1_000 for of in answers)
        if self._asked_offsets != self.lies.ends_too_low:
            return
        self.lies.ends_too_low = None
        self.lies.count += 1
        for of in answers:
            of.offset //= 2


def _is_in(place: Place | None, partition: int, offsets: range) -> bool:
    return place is not None and place.partition == partition and place.offset in offsets


def _torn(value: bytes | None) -> bytes:
    assert value
    return value[:-6] + bytes([value[-6] ^ 1]) + value[-5:]


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(size)
