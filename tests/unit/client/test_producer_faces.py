"""Both producers over real sockets on an embedded broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait

import pytest

from raylog.client import (
    EARLIEST,
    Admin,
    AsyncProducer,
    ClientError,
    Delivery,
    InvalidSetting,
    NewTopic,
    Producer,
    Record,
    RecordFuture,
    RequestTimedOut,
    TopicPartition,
)
from raylog.client.interceptors import ClientInterceptor, ProducerRecord, RecordMetadata
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import MessageTooLarge

names = (f"topic-{number}" for number in itertools.count())
Ended = tuple[RecordMetadata, Exception | None]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(brokers=2, first_broker_id=1) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = next(names)
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 3, configs={"max.message.bytes": "20000"})])
    return name


def read(bootstrap: str, topic: str, count: int) -> dict[int, list[Record]]:
    """All records by partition."""
    found: dict[int, list[Record]] = {0: [], 1: [], 2: []}
    with Admin(bootstrap) as admin:
        consumer = admin.consumer()
        consumer.assign({TopicPartition(topic, partition): EARLIEST for partition in found})
        for _ in range(200):
            for group in consumer.poll(100):
                found[group.partition] += group.records
            if sum(map(len, found.values())) >= count:
                break
        consumer.close()
    return found


def values(found: Mapping[int, Sequence[Record]]) -> list[bytes | None]:
    return [record.value for records in found.values() for record in records]


def as_json(topic: str, data: object, headers: object) -> bytes:
    return json.dumps(data).encode()


def as_text(topic: str, data: str, headers: object) -> bytes:
    return data.encode()


class Seen(ClientInterceptor):
    """Records what passes and marks it."""

    def __init__(self) -> None:
        self.ends: list[Ended] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(headers=[*record.headers, ("seen", b"1")])

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        self.ends.append((metadata, failure))


def test_each_record_has_its_future_and_its_callback(bootstrap: str, topic: str) -> None:
    ends: list[Ended] = []
    with Producer(bootstrap, linger_ms=1) as producer:
        futures = [
            producer.submit(
                topic,
                b"%d" % number,
                partition=number % 2,
                timestamp_ms=1_000 + number,
                on_delivery=lambda *end: ends.append(end),
            )
            for number in range(100)
        ]
        assert futures[0].cancel() is False
        for number, future in enumerate(futures):
            expected = RecordMetadata(topic, number % 2, number // 2, 1_000 + number)
            assert future.result(30) == expected
        assert producer.send_and_wait(topic, b"last", partition=0).offset == 50
        assert producer.statistics().records == 101
        assert producer.statistics().buffer_bytes == 0
    assert all(failure is None for _, failure in ends)
    for partition in (0, 1):
        offsets = [metadata.offset for metadata, _ in ends if metadata.partition == partition]
        assert offsets == list(range(50)), "in order within a partition"


def test_refused_record_fails_only_its_own_future(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        good = producer.submit(topic, b"x", partition=0)
        large = producer.submit(topic, b"x" * 30_000, partition=0)
        other = producer.submit(topic, b"y", partition=0)
        assert isinstance(large.exception(30), MessageTooLarge)
        assert {good.result(30).offset, other.result(30).offset} == {0, 1}
        producer.flush()  # whoever has a future is not told again
    assert producer.statistics().errors == 1


def test_a_batch_larger_than_the_topic_takes_is_split(bootstrap: str, topic: str) -> None:
    sent = [b"%04d" % number * 25 for number in range(1_000)]
    with Producer(bootstrap, linger_ms=1_000) as producer:
        assert producer.send_rows(topic, sent, partition=1) == 1_000
    assert producer.statistics().splits > 0
    assert values(read(bootstrap, topic, 1_000)) == sent


def test_rows_with_and_without_keys_and_serializers(bootstrap: str, topic: str) -> None:
    rows = [(f"k{number % 7}", {"n": number}) for number in range(3_000)]
    with Producer(
        bootstrap, key_serializer=as_text, value_serializer=as_json, batch_size=2_000
    ) as producer:
        assert producer.send_rows(topic, rows, headers=[("h", b"1")], timestamp_ms=5) == 3_000
        producer.send(topic, {"n": 3_000}, "k0")
    found = read(bootstrap, topic, 3_001)
    by_key: dict[bytes | None, list[int]] = {}
    for records in found.values():
        for record in records:
            assert record.value is not None
            by_key.setdefault(record.key, []).append(json.loads(record.value)["n"])
    assert len(by_key) == 7
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(map(len, by_key.values())) == 3_001
    first = found[0][0]
    assert (first.headers, first.timestamp) == ([("h", b"1")], 5)


def test_keyless_rows_are_spread_by_batches(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, batch_size=5_000) as producer:
        producer.send_rows(topic, (b"x" * 100 for _ in range(3_000)))
        for _ in range(3_000):
            producer.send(topic, b"x" * 100)
    counts = [len(records) for records in read(bootstrap, topic, 6_000).values()]
    assert sum(counts) == 6_000
    assert min(counts) > 1_500


def test_serializer_error_is_raised_after_the_earlier_rows_were_sent(
    bootstrap: str, topic: str
) -> None:
    rows: list[object] = [*range(50), {1, 2}, 51]
    with Producer(bootstrap, value_serializer=as_json) as producer:
        with pytest.raises(TypeError, match="not JSON serializable"):
            producer.send_rows(topic, rows, partition=0)
        with pytest.raises(TypeError):
            producer.send(topic, {1})
    assert values(read(bootstrap, topic, 50)) == [b"%d" % number for number in range(50)]


def test_rows_of_an_iterable_that_raises_are_taken_up_to_there(bootstrap: str, topic: str) -> None:
    def rows() -> Iterator[bytes]:
        yield from (b"0", b"1", b"2")
        raise OSError("the file has ended")

    with Producer(bootstrap) as producer, pytest.raises(OSError, match="ended"):
        producer.send_rows(topic, rows(), partition=0)
    producer = Producer(bootstrap)
    producer.close()
    assert values(read(bootstrap, topic, 3)) == [b"0", b"1", b"2"]


def test_interceptors_then_serializers_then_the_partitioner(bootstrap: str, topic: str) -> None:
    """facts.md, Producer client: interceptors → serializers → partitioner → accumulator."""
    seen = Seen()
    asked: list[tuple[object, ...]] = []

    def partitioner(
        topic: str, key_bytes: bytes | None, key: object, value: object, partitions: Sequence[int]
    ) -> int:
        asked.append((topic, key_bytes, key, value, tuple(partitions)))
        return partitions[-1]

    with Producer(
        bootstrap,
        key_serializer=as_text,
        value_serializer=as_json,
        partitioner=partitioner,
        interceptors=[seen],
    ) as producer:
        producer.send(topic, [1], "k", timestamp_ms=7)
        assert producer.send_rows(topic, [("l", [2])]) == 1
        with pytest.raises(TypeError):
            producer.send(topic, {1}, "k")
    assert asked == [(topic, b"k", "k", [1], (0, 1, 2)), (topic, b"l", "l", [2], (0, 1, 2))]
    records = read(bootstrap, topic, 2)[2]
    assert [record.headers for record in records] == [[("seen", b"1")]] * 2
    metadata = [metadata for metadata, failure in seen.ends if failure is None]
    assert metadata[0] == RecordMetadata(topic, 2, 0, 7)
    assert [type(failure) for _, failure in seen.ends].count(TypeError) == 1
    assert len(seen.ends) == 3


@pytest.mark.parametrize("rubbish", [3, -1, "0", None, 1.0])
def test_invalid_result_of_a_partitioner_is_refused(
    bootstrap: str, topic: str, rubbish: object
) -> None:
    with (
        Producer(bootstrap, partitioner=lambda *_: rubbish) as producer,  # type: ignore[arg-type]  # that is what is tested
        pytest.raises(ClientError, match=r"expected the partitioner to return one of 3 partitions"),
    ):
        producer.send(topic, b"x")


def test_non_bytes_key_or_value_is_refused(bootstrap: str, topic: str) -> None:
    wrong: object
    with Producer(bootstrap) as producer:
        for wrong in ("text", 7):
            with pytest.raises(TypeError, match="expected value to be bytes"):
                producer.send(topic, wrong)  # type: ignore[arg-type]  # that is what is tested
            with pytest.raises(TypeError, match="expected key to be bytes"):
                producer.send(topic, b"", wrong)  # type: ignore[arg-type]  # as above
            with pytest.raises(TypeError, match="expected value to be bytes"):
                producer.send_rows(topic, [wrong])  # type: ignore[list-item]  # as above
        with pytest.raises(TypeError, match="header"):
            producer.send(topic, b"", headers=[(b"name", b"")])  # type: ignore[list-item]  # as above
        with pytest.raises(ValueError, match="timestamp_ms of 0 or more"):
            producer.send(topic, b"", timestamp_ms=-5)
        changed = bytearray(b"as it was")
        producer.send(topic, changed, partition=0)  # type: ignore[arg-type]  # taken as a copy
        changed[:] = b"as it is "
    assert values(read(bootstrap, topic, 1)) == [b"as it was"]


def test_a_callback_may_raise_and_send_but_not_wait(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    raised: list[Exception] = []
    producer = Producer(bootstrap, linger_ms=0)

    def sends_again(metadata: RecordMetadata, failure: Exception | None) -> None:
        producer.send(topic, b"again", partition=0)
        try:
            producer.flush()
        except ClientError as error:
            raised.append(error)
        raise ValueError("of the callback")

    producer.send(topic, b"first", partition=0, on_delivery=sends_again)
    producer.flush()
    producer.close()
    assert values(read(bootstrap, topic, 2)) == [b"first", b"again"]
    assert len(raised) == 1
    assert "on_delivery failed" in caplog.text


def test_flush_and_close_end_in_time_while_a_callback_blocks(bootstrap: str, topic: str) -> None:
    goes_on = threading.Event()
    producer = Producer(bootstrap, linger_ms=0)
    producer.send(topic, b"x", partition=0, on_delivery=lambda *_: goes_on.wait(30))
    late = producer.submit(topic, b"y", partition=1)
    waiting = threading.Timer(0.2, goes_on.set)
    waiting.start()
    producer.close()
    waiting.join()
    assert late.result(0).offset == 0


def test_close_ends_every_record(topic: str) -> None:
    broker = EmbeddedBroker()
    broker.start()
    producer = Producer(broker.bootstrap, linger_ms=60_000)
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 1)])
    futures = [producer.submit("t", b"x") for _ in range(10)]
    broker.stop()
    with pytest.raises(RequestTimedOut, match="1 batches are unacknowledged"):
        producer.flush(0.05)
    producer.close(0)
    assert {str(future.exception(0)) for future in futures} == {"the producer was closed"}
    with pytest.raises(ClientError, match="closed"):
        producer.send("t", b"x")
    producer.close()


def test_settings_go_by_kafkas_names(bootstrap: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 7}, acks=1) as producer:
        assert producer._producer.settings.linger_ms == 7
        assert producer._producer.settings.acks == 1
        assert producer.partitions_for(next(names)) == [0]
    with pytest.raises(InvalidSetting, match="linger_ms"):
        Producer(bootstrap, linger=7)


def test_the_asyncio_producer_does_the_same(bootstrap: str, topic: str) -> None:
    ends: list[Ended] = []

    async def rows() -> list[int]:
        async def generated() -> AsyncIterator[int]:
            for number in range(5):
                yield number

        async with AsyncProducer(
            bootstrap, value_serializer=as_json, linger_ms=1, interceptors=[Seen()]
        ) as producer:
            await producer.send(topic, 0, partition=0, on_delivery=lambda *end: ends.append(end))
            futures = [await producer.submit(topic, n, partition=0) for n in range(1, 50)]
            cancelled = await producer.submit(topic, 50, partition=0)
            cancelled.cancel()
            offsets = [(await future).offset for future in futures]
            assert (await producer.send_and_wait(topic, 51, partition=0)).offset == 51
            with pytest.raises(TypeError):
                await producer.send(topic, {1})
            assert await producer.send_rows(topic, range(52, 2_000), partition=0) == 1_948
            assert await producer.send_rows(topic, generated(), partition=1) == 5
            assert await producer.partitions_for(topic) == [0, 1, 2]
            await producer.flush(30)
            assert producer.statistics().records == 2_005
            return offsets

    assert asyncio.run(asyncio.wait_for(rows(), 60)) == list(range(1, 50))
    assert [metadata.offset for metadata, _ in ends] == [0]
    found = read(bootstrap, topic, 2_005)
    assert [record.value for record in found[0]] == [b"%d" % n for n in range(2_000)]


def test_an_asyncio_producer_that_is_closed_tells_all(bootstrap: str, topic: str) -> None:
    async def work() -> None:
        producer = AsyncProducer(bootstrap, linger_ms=60_000)
        future = await producer.submit(topic, b"x")
        await producer.close(0)
        with pytest.raises(ClientError, match="closed"):
            await future
        with pytest.raises(ClientError, match="closed"):
            await producer.send(topic, b"x")
        await producer.close()

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_future_is_one_of_the_standard_librarys() -> None:
    """Whoever waits before or after its end, alone or for several, gets the same."""
    metadata, failure = RecordMetadata("t", 0, 5, 7), ValueError("refused")
    early, late, failed, chained = (RecordFuture() for _ in range(4))
    called: list[Future[RecordMetadata]] = []
    chained.add_done_callback(called.append)
    with pytest.raises(TimeoutError):
        early.result(0)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(early.result, 30)
        waited: list[Future[RecordMetadata]] = [early, late, failed]
        both = pool.submit(wait, waited, 30)
        for future in (early, late, chained):
            assert not future.done()
            future.ended(metadata, None)
            assert future.done()
        failed.ended(metadata, failure)
        assert first.result(30) == metadata
        done, pending = both.result(30)
        assert (done, pending) == ({early, late, failed}, set())
    assert [early.result(0), late.result(), chained.result()] == [metadata] * 3
    assert failed.exception() is failure
    with pytest.raises(ValueError, match="refused"):
        failed.result()
    assert called == [chained]
    assert set(as_completed(waited)) == set(waited)
    late.add_done_callback(called.append)
    assert called == [chained, late]
    assert "finished" in repr(late)
    assert not late.cancelled()
    assert not late.running()


def test_rows_tell_of_their_ends_together(bootstrap: str, topic: str) -> None:
    """Batches that were full, and one that the broker found too large, are told apart."""
    sent = [b"%04d" % number * 25 for number in range(1_000)]
    ended: list[tuple[int, Delivery]] = []
    with Producer(bootstrap, batch_size=30_000) as producer:
        producer.send(topic, b"before", partition=1)
        producer.send_rows(
            topic,
            sent,
            partition=1,
            on_delivery=lambda row, delivery: ended.append((row, delivery)),
        )
    assert producer.statistics().splits > 0
    assert len(ended) > 4
    row = 0
    for first_row, delivery in ended:
        assert (first_row, delivery.failure) == (row, None)
        assert delivery[:3] == (topic, 1, row + 1)
        row += delivery.record_count
    assert row == len(sent)


def test_rows_that_fail_are_reported_to_their_listener_alone(bootstrap: str, topic: str) -> None:
    ended: list[tuple[int, Delivery]] = []
    with Producer(bootstrap) as producer:
        producer.send_rows(
            topic,
            [b"small", b"x" * 30_000, b"small"],
            partition=0,
            on_delivery=lambda row, delivery: ended.append((row, delivery)),
        )
        producer.flush()  # it raises nothing: somebody was told
    failed = [(row, of.record_count) for row, of in ended if of.failure is not None]
    assert failed == [(1, 1)]
    assert sum(of.record_count for _, of in ended) == 3


def test_rows_with_interceptors_tell_of_their_ends_one_by_one(bootstrap: str, topic: str) -> None:
    ended: list[tuple[int, Delivery]] = []
    with Producer(bootstrap, interceptors=[ClientInterceptor()]) as producer:
        producer.send_rows(
            topic,
            [b"0", b"1"],
            partition=0,
            on_delivery=lambda row, delivery: ended.append((row, delivery)),
        )
    assert ended == [(row, Delivery(topic, 0, row, 1)) for row in (0, 1)]


def test_rows_with_a_listener_need_a_partition(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer, pytest.raises(ClientError, match="needs a partition"):
        producer.send_rows(topic, [b"0"], on_delivery=lambda _row, _delivery: None)


async def _rows_of_an_async_producer(bootstrap: str, topic: str) -> list[tuple[int, Delivery]]:
    ended: list[tuple[int, Delivery]] = []

    def note(row: int, delivery: Delivery) -> None:
        ended.append((row, delivery))

    async def rows() -> AsyncIterator[bytes]:
        yield b"2"
        yield b"3"

    async with AsyncProducer(bootstrap) as producer:
        await producer.send_rows(topic, [b"0", b"1"], partition=0, on_delivery=note)
        await producer.flush()
        await producer.send_rows(topic, rows(), partition=0, on_delivery=note)
    return ended


def test_an_async_producer_tells_of_rows_too(bootstrap: str, topic: str) -> None:
    ended = asyncio.run(_rows_of_an_async_producer(bootstrap, topic))
    assert ended == [
        (0, Delivery(topic, 0, 0, 2)),
        (0, Delivery(topic, 0, 2, 1)),
        (1, Delivery(topic, 0, 3, 1)),
    ]
