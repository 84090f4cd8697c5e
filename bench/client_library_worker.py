"""One measurement of `bench.client_libraries`: one client library does one kind of work.

It runs in a process of its own and prints a line of JSON: records, wall-clock and CPU seconds, and
the peak growth of the process in MiB. The clock starts when the client is connected and has sent
(or read) its first record.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LINGER_MS = 5
BATCH_BYTES = 128 * 1024
BUFFER_BYTES = 64 * 1024 * 1024
_POOL = 1024
_KEYS = 8192
_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Task:
    """The task of one process."""

    library: str
    work: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    size: int
    codec: str


@dataclass(slots=True)
class Clock:
    """Wall-clock and CPU time of this process since `start`."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    grown_mib: float = 0.0

    def start(self) -> None:
        """Start the clock."""
        self.grown_mib = _memory_mib("VmRSS")
        self.wall_s, self.cpu_s = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Stop the clock."""
        self.wall_s = time.perf_counter() - self.wall_s
        self.cpu_s = time.process_time() - self.cpu_s
        self.grown_mib = _memory_mib("VmHWM") - self.grown_mib


def _memory_mib(name: str) -> float:
    """A value of this process's status: VmRSS is its current memory, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def linger_of(task: Task) -> int:
    """linger.ms; 0 if single records are awaited."""
    return 0 if task.work == "latency" else LINGER_MS


def values_of(size: int) -> list[bytes]:
    """Values that compress to about half."""
    rng = random.Random(size)
    words = [rng.randbytes(16) for _ in range(64)]
    return [b"".join(rng.choices(words, k=size // 16 + 1))[:size] for _ in range(_POOL)]


def keys_of() -> list[bytes]:
    """As many keys as a busy topic has."""
    return [b"customer-%d" % number for number in range(_KEYS)]


# -- producing -----------------------------------------------------------------------------------

Send = Callable[[bytes, bytes | None], object]


def _loop(task: Task, send: Send) -> None:
    values = values_of(task.size)
    if task.work == "keyed":
        keys = keys_of()
        for number in range(task.records):
            send(values[number % _POOL], keys[number * 7 % _KEYS])
    else:
        for number in range(task.records):
            send(values[number % _POOL], None)


def _rows(task: Task) -> Iterator[bytes]:
    values = values_of(task.size)
    return (values[number % _POOL] for number in range(task.records))


def _table(task: Task) -> Any:
    import pyarrow  # type: ignore[import-untyped,unused-ignore]  # has no types

    return pyarrow.table({"value": pyarrow.array(list(_rows(task)), pyarrow.binary())})


def raylog_produce(task: Task, clock: Clock) -> int:
    """Produce with raylog.client's blocking producer; `table` uses `send_table`."""
    from raylog.client import Producer

    topic = task.topic
    producer = Producer(
        task.bootstrap,
        linger_ms=linger_of(task),
        batch_size=BATCH_BYTES,
        buffer_memory=BUFFER_BYTES,
        compression_type=task.codec,
    )
    if task.work == "latency":
        value = values_of(task.size)[0]
        return _latency(task, lambda: producer.send_and_wait(topic, value))
    producer.send_and_wait(topic, b"first")
    warm_up_count = 1
    table = _table(task) if task.work == "table" else None
    if table is not None:
        warm_up_count += producer.send_table(topic, table.slice(0, 1))
        producer.flush()
    ended = 0

    def on_delivery(metadata: object, failure: Exception | None) -> None:
        nonlocal ended
        ended += failure is None

    clock.start()
    if task.work == "rows":
        producer.send_rows(topic, _rows(task))
    elif task.work == "table":
        producer.send_table(topic, table, value="value")  # type: ignore[attr-defined,unused-ignore]  # may be of a later version
    elif task.work == "future":
        futures: list[Any] = []
        submit, add = producer.submit, futures.append
        _loop(task, lambda value, key: add(submit(topic, value)))
        producer.flush()
        assert all(future.done() for future in futures)
    elif task.work == "callback":
        send = producer.send
        _loop(task, lambda value, key: send(topic, value, on_delivery=on_delivery))
    else:
        send = producer.send
        _loop(task, lambda value, key: send(topic, value, key))
    producer.flush()
    clock.stop()
    assert task.work != "callback" or ended == task.records
    count = producer.delivered_count - warm_up_count
    producer.close()
    return count


def raylog_asyncio_produce(task: Task, clock: Clock) -> int:
    """Produce with raylog.client's asyncio producer."""
    return asyncio.run(_raylog_asyncio_produce(task, clock))


async def _raylog_asyncio_produce(task: Task, clock: Clock) -> int:
    from raylog.client import AsyncProducer

    producer = AsyncProducer(
        task.bootstrap,
        linger_ms=linger_of(task),
        batch_size=BATCH_BYTES,
        buffer_memory=BUFFER_BYTES,
        compression_type=task.codec,
    )
    topic, values, keys = task.topic, values_of(task.size), keys_of()
    if task.work == "latency":
        return await _latency_asyncio(task, lambda: producer.send_and_wait(topic, values[0]))
    await producer.send_and_wait(topic, b"first")
    warm_up_count = 1
    table = _table(task) if task.work == "table" else None
    if table is not None:
        warm_up_count += await producer.send_table(topic, table.slice(0, 1))
        await producer.flush()
    clock.start()
    if table is not None:
        await producer.send_table(topic, table)
    elif task.work == "rows":
        await producer.send_rows(topic, _rows(task))
    else:
        send: Any = producer.submit if task.work == "future" else producer.send
        for number in range(task.records):
            key = keys[number * 7 % _KEYS] if task.work == "keyed" else None
            await send(topic, values[number % _POOL], key)
    await producer.flush()
    clock.stop()
    await producer.close()
    return producer.delivered_count - warm_up_count


class _Confluent:
    """confluent-kafka's producer as a program uses it: it waits while the queue is full."""

    def __init__(self, task: Task) -> None:
        from confluent_kafka import Producer

        self.producer = Producer(
            {
                "bootstrap.servers": task.bootstrap,
                "acks": "all",
                "linger.ms": linger_of(task),
                "batch.size": BATCH_BYTES,
                "batch.num.messages": 100_000,
                "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
                "queue.buffering.max.messages": 10_000_000,
                "compression.codec": task.codec,
            }
        )
        self.topic = task.topic
        self.ended = 0
        self.futures: list[Any] = []
        self._sent = 0

    def send(self, value: bytes, key: bytes | None, **more: Any) -> None:
        """Send without a delivery report."""
        while True:
            try:
                self.producer.produce(self.topic, value, key, **more)
                break
            except BufferError:
                self.producer.poll(0.01)

    def reported(self, value: bytes, key: bytes | None) -> None:
        """Send with a callback that counts."""
        self.send(value, key, on_delivery=self._count)
        self._serve()

    def submit(self, value: bytes, key: bytes | None) -> None:
        """Send with a future, which the callback sets, because the library has none."""
        future: Future[object] = Future()
        self.futures.append(future)
        self.send(value, key, on_delivery=lambda error, message: future.set_result(message))
        self._serve()

    def _count(self, error: object, message: object) -> None:
        self.ended += error is None

    def _serve(self) -> None:
        self._sent += 1
        if not self._sent & 1023:
            self.producer.poll(0)


def confluent_produce(task: Task, clock: Clock) -> int:
    """Produce with confluent-kafka."""
    client = _Confluent(task)
    value = values_of(task.size)[0]

    def wait_one() -> None:
        client.producer.produce(task.topic, value)
        client.producer.flush()

    if task.work == "latency":
        return _latency(task, wait_one)
    wait_one()
    clock.start()
    _loop(task, {"future": client.submit, "callback": client.reported}.get(task.work, client.send))
    client.producer.flush()
    clock.stop()
    assert task.work != "callback" or client.ended == task.records
    return task.records


def kafka_python_produce(task: Task, clock: Clock) -> int:
    """Produce with kafka-python. Each send returns a future."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        linger_ms=linger_of(task),
        batch_size=BATCH_BYTES,
        compression_type=None if task.codec == "none" else task.codec,
    )
    topic, send = task.topic, producer.send
    if task.work == "latency":
        value = values_of(task.size)[0]
        return _latency(task, lambda: send(topic, value).get(60))
    send(topic, b"first").get(60)
    ended = 0

    def on_delivery(metadata: object) -> None:
        nonlocal ended
        ended += 1

    clock.start()
    if task.work == "callback":
        _loop(task, lambda value, key: send(topic, value).add_callback(on_delivery))
    else:
        _loop(task, lambda value, key: send(topic, value, key))
    producer.flush()
    clock.stop()
    producer.close()
    return task.records


def aiokafka_produce(task: Task, clock: Clock) -> int:
    """Produce with aiokafka. Each send returns a future."""
    return asyncio.run(_aiokafka_produce(task, clock))


async def _aiokafka_produce(task: Task, clock: Clock) -> int:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        linger_ms=linger_of(task),
        max_batch_size=BATCH_BYTES,
        compression_type=None if task.codec == "none" else task.codec,
    )
    await producer.start()
    topic, send = task.topic, producer.send
    values, keys = values_of(task.size), keys_of()
    if task.work == "latency":
        count = await _latency_asyncio(task, lambda: producer.send_and_wait(topic, values[0]))
        await producer.stop()
        return count
    await producer.send_and_wait(topic, b"first")
    clock.start()
    for number in range(task.records):
        key = keys[number * 7 % _KEYS] if task.work == "keyed" else None
        await send(topic, values[number % _POOL], key)
    await producer.flush()
    clock.stop()
    await producer.stop()
    return task.records


def _latency(task: Task, one: Callable[[], object]) -> int:
    """Send one record after another."""
    times: list[float] = []
    one()
    for _ in range(task.records):
        began = time.perf_counter()
        one()
        times.append(time.perf_counter() - began)
    _print_latency(times)
    return task.records


async def _latency_asyncio(task: Task, one: Callable[[], Awaitable[object]]) -> int:
    """Send one record after another in an event loop."""
    times: list[float] = []
    await one()
    for _ in range(task.records):
        began = time.perf_counter()
        await one()
        times.append(time.perf_counter() - began)
    _print_latency(times)
    return task.records


def _print_latency(times: list[float]) -> None:
    times.sort()
    print(
        json.dumps(
            {"p50_ms": 1e3 * times[len(times) // 2], "p99_ms": 1e3 * times[-len(times) // 100]}
        )
    )


# -- consuming -----------------------------------------------------------------------------------


def raylog_consume(task: Task, clock: Clock) -> int:
    """Consume with raylog.client: lists of records by partition, or tables."""
    from raylog.client import EARLIEST, Admin, TopicPartition

    with Admin(task.bootstrap) as admin:
        consumer: Any = admin.consumer()
        keys = [TopicPartition(task.topic, number) for number in range(task.partitions)]
        consumer.assign(dict.fromkeys(keys, EARLIEST))

        def poll() -> int:
            if task.work == "table":
                table = consumer.poll_table(timeout_ms=1_000, max_records=50_000)
                return int(table.num_rows)
            return sum(len(group.records) for group in consumer.poll(1_000, max_records=10_000))

        count = _read_all(task, clock, poll)
        consumer.close()
    return count


def confluent_consume(task: Task, clock: Clock) -> int:
    """Consume with confluent-kafka's `consume`, its fastest method."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,  # by default it may pause for a second
        }
    )
    consumer.assign(
        [TopicPartition(task.topic, number, OFFSET_BEGINNING) for number in range(task.partitions)]
    )

    def poll() -> int:
        messages = consumer.consume(10_000, 0.2)
        return sum(message.value() is not None for message in messages)

    count = _read_all(task, clock, poll)
    consumer.close()
    return count


def kafka_python_consume(task: Task, clock: Clock) -> int:
    """Consume with kafka-python's `poll`."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(task.topic, number) for number in range(task.partitions)])
    consumer.seek_to_beginning()

    def poll() -> int:
        return sum(map(len, consumer.poll(1_000, max_records=10_000).values()))

    count = _read_all(task, clock, poll)
    consumer.close()
    return count


def aiokafka_consume(task: Task, clock: Clock) -> int:
    """Consume with aiokafka's `getmany`."""
    return asyncio.run(_aiokafka_consume(task, clock))


async def _aiokafka_consume(task: Task, clock: Clock) -> int:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(task.topic, number) for number in range(task.partitions)])
    await consumer.seek_to_beginning()
    count = first = 0
    while count < task.records:
        found = await consumer.getmany(timeout_ms=1_000, max_records=10_000)
        count += sum(map(len, found.values()))
        if not first and count:
            first = count
            clock.start()
    clock.stop()
    await consumer.stop()
    return count - first


def _read_all(task: Task, clock: Clock, poll: Callable[[], int]) -> int:
    """Poll until all records have arrived. The first poll counts neither in time nor in records."""
    count = first = 0
    silent_since = time.monotonic()
    while count < task.records and time.monotonic() < silent_since + _SILENCE_S:
        found = poll()
        if found:
            silent_since = time.monotonic()
        count += found
        if not first and count:
            first = count
            clock.start()
    clock.stop()
    if count < task.records:
        raise TimeoutError(f"expected {task.records} records, found {count}")
    return count - first


WORKERS: dict[tuple[str, str], Callable[[Task, Clock], int]] = {
    ("raylog", "produce"): raylog_produce,
    ("raylog-asyncio", "produce"): raylog_asyncio_produce,
    ("confluent-kafka", "produce"): confluent_produce,
    ("kafka-python", "produce"): kafka_python_produce,
    ("aiokafka", "produce"): aiokafka_produce,
    ("raylog", "consume"): raylog_consume,
    ("confluent-kafka", "consume"): confluent_consume,
    ("kafka-python", "consume"): kafka_python_consume,
    ("aiokafka", "consume"): aiokafka_consume,
}


def main() -> None:
    """Run the task of the first argument, a Task in JSON, in the direction of the second."""
    task, direction = Task(**json.loads(sys.argv[1])), sys.argv[2]
    clock = Clock()
    count = WORKERS[task.library, direction](task, clock)
    print(json.dumps({"records": count, **asdict(clock)}))


if __name__ == "__main__":
    main()
