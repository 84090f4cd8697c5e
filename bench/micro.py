"""`python -m bench.micro`: codec, records and log alone, in CPU time of one thread.

The best of several rounds counts, so that other work on the machine has little effect.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import thread_time_ns
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import report
from raylog.storage.config import LogConfig
from raylog.storage.disk import OsDisk
from raylog.storage.log import Log
from raylog.wire.codec import decode, encode, encode_chunks
from raylog.wire.compression import Codec
from raylog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from raylog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from raylog.wire.records import (
    Record,
    check_produced,
    decode_batch,
    encode_batch,
    read_header,
    validate_records,
)

NOW_MS = 1_700_000_000_000
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One operation. `size` is its payload in bytes; 0 if it reads none."""

    name: str
    run: Callable[[], object]
    size: int = 0


def batch_of(payload_bytes: int, value_bytes: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch with about `payload_bytes` of values that compress to about half."""
    rng = random.Random(payload_bytes)
    words = [rng.randbytes(16) for _ in range(64)]
    count = max(1, payload_bytes // value_bytes)
    records = [
        Record(n, NOW_MS + n, None, b"".join(rng.choices(words, k=value_bytes // 16 + 1)), [])
        for n in range(count)
    ]
    trimmed = [record._replace(value=(record.value or b"")[:value_bytes]) for record in records]
    return bytearray(encode_batch(trimmed, codec=codec))


def message_cases() -> Iterator[Case]:
    """Messages of the hot path."""
    batch = batch_of(64 << 10, 1024)
    part = PartitionProduceData(index=0, records=memoryview(batch))
    produce = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[part])]
    )
    sent = encode(produce, 12)
    yield Case("decode Produce v12, 64 KiB", partial(decode, ProduceRequest, 12, sent))
    answer = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t", partition_responses=[PartitionProduceResponse(index=0, base_offset=7)]
            )
        ]
    )
    yield Case("encode ProduceResponse v12", partial(encode_chunks, answer, 12))
    for count in (1, 100):
        fetch = FetchRequest(
            max_wait_ms=500,
            topics=[
                FetchTopic(
                    topic_id=b"t" * 16,
                    partitions=[FetchPartition(partition=p, fetch_offset=p) for p in range(count)],
                )
            ],
        )
        asked = encode(fetch, 17)
        name = f"decode Fetch v17, {count} partitions"
        yield Case(name, partial(decode, FetchRequest, 17, asked))
    data = PartitionData(partition_index=0, high_watermark=9, records=memoryview(bytes(1 << 20)))
    fetched = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[data])]
    )
    yield Case("encode FetchResponse v17, 1 MiB", partial(encode_chunks, fetched, 17))
    metadata = _metadata(1_000)
    yield Case("encode Metadata v13, 1,000 topics", partial(encode, metadata, 13))


def _metadata(topics: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=9092)],
        cluster_id="micro",
        topics=[
            MetadataResponseTopic(
                name=f"topic-{n}",
                topic_id=n.to_bytes(16, "big"),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=0, replica_nodes=[0], isr_nodes=[0], leader_id=0
                    )
                ],
            )
            for n in range(topics)
        ],
    )


def record_cases() -> Iterator[Case]:
    """Record batches: what every produced batch passes, then what only clients do."""
    for kib in (16, 64, 1024):
        batch = batch_of(kib << 10, 1024)
        yield Case(
            f"check a produced batch of {kib} KiB",
            partial(check_produced, batch),
            len(batch),
        )
    yield from walk_cases()
    for codec in Codec:
        batch = batch_of(64 << 10, 256, codec)
        records = decode_batch(batch)
        yield Case(
            f"decode 256 records of 256 B, {codec.name.lower()}",
            partial(decode_batch, batch),
            64 << 10,
        )
        yield Case(
            f"encode 256 records of 256 B, {codec.name.lower()}",
            partial(encode_batch, records, codec=codec),
            64 << 10,
        )


def walk_cases() -> Iterator[Case]:
    """The gateway's checks of every produced record."""
    rng = random.Random(1)
    sizes = {"100 B": [100] * 650, "50 to 150 B": [rng.randint(50, 150) for _ in range(650)]}
    sizes["1 KiB"] = [1024] * 64
    for name, chosen in sizes.items():
        records = [
            Record(n, NOW_MS + n // 20, None, rng.randbytes(size // 2) + bytes(size // 2), [])
            for n, size in enumerate(chosen)
        ]
        for codec in Codec:
            batch = encode_batch(records, codec=codec)
            yield Case(
                f"walk {len(records)} records of {name}, {codec.name.lower()}",
                partial(validate_records, batch, read_header(batch)),
                sum(chosen),
            )


class Appender:
    """Appends one batch repeatedly. Old segments are removed when there are enough."""

    def __init__(self, directory: Path, config: LogConfig, batch: memoryview) -> None:
        self._log = Log.open(directory, config, OsDisk(), now_ms=NOW_MS)
        self._batch = batch
        self._header = read_header(batch)

    def __call__(self) -> None:
        """Append once."""
        self._log.append(self._batch, self._header, 0, NOW_MS)
        if self._log.segment_count > 3:
            self._log.retention(NOW_MS, self._log.log_end_offset)


def log_cases(directory: Path) -> Iterator[Case]:
    """A log on the local disk."""
    config = LogConfig(segment_bytes=256 << 20, retention_bytes=512 << 20)
    for size in (1, 16, 64):
        batch = memoryview(batch_of(size << 10, 1024))
        yield Case(f"append {size} KiB", Appender(directory / str(size), config, batch), len(batch))
    yield from _read_cases(directory / "read", config)


def _read_cases(directory: Path, config: LogConfig) -> Iterator[Case]:
    log = Log.open(directory, config, OsDisk(), now_ms=NOW_MS)
    batch = memoryview(batch_of(64 << 10, 1024))
    header = read_header(batch)
    for _ in range(4_000):
        log.append(batch, header, 0, NOW_MS)
    end = log.log_end_offset
    rng = random.Random(1)
    position = 0

    def onward() -> None:
        nonlocal position
        found = log.read(position, 1 << 20, end)
        assert found is not None
        position = found.next_offset if found.next_offset < end else 0

    yield Case("slice 1 MiB, in sequence", onward)
    yield Case("slice 1 MiB, anywhere", lambda: log.read(rng.randrange(end), 1 << 20, end))
    yield Case(
        "offset for a time", lambda: log.reader.begin_lookup(NOW_MS + rng.randrange(64)).run()
    )


def measured_ns(case: Case, seconds: float) -> float:
    """CPU ns of one operation: the best of several rounds that take `seconds` together."""
    case.run()
    began = thread_time_ns()
    case.run()
    once = max(200, thread_time_ns() - began)
    repeat = max(1, int(seconds / ROUNDS * 1e9 / once))
    best = float("inf")
    run = case.run
    for _ in range(ROUNDS):
        began = thread_time_ns()
        for _ in range(repeat):
            run()
        best = min(best, (thread_time_ns() - began) / repeat)
    return best


def main(
    seconds: Annotated[float, typer.Option(min=0.01, help="For each figure.")] = 0.5,
    only: Annotated[str, typer.Option(help="Cases with this in the name.")] = "",
) -> None:
    """Print the CPU time of operations and their rate per second of one core."""
    table = Table("operation", "µs", "per s", "MB/s", title="codec, records and log alone")
    directory = Path(tempfile.mkdtemp(prefix="raylog-micro-"))
    try:
        for case in (*message_cases(), *record_cases(), *log_cases(directory)):
            if only in case.name:
                taken = measured_ns(case, seconds)
                volume = f"{case.size / taken * 1e3:,.0f}" if case.size else ""
                table.add_row(case.name, f"{taken / 1e3:,.1f}", f"{1e9 / taken:,.0f}", volume)
    finally:
        shutil.rmtree(directory)
    Console().print(table)
    Console(stderr=True).print(report.circumstances(), soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
