"""A table sends the same bytes to the same partitions as its rows sent one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raylog.client.arrow.hashing import murmur2_of
from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.client.arrow.outgoing import ColumnNames
from raylog.client.arrow.sending import TableBatches
from raylog.client.producer.batch import record_size
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.partitioner import crc32_partition, murmur2, partition_of_key
from raylog.client.settings import ProducerSettings
from raylog.wire.record import Record, decode_records, encode_records

BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BLOBS = st.none() | st.binary(max_size=70) | st.sampled_from([b"k" * 8_192, b"v" * 63, b"v" * 64])
KEYS = st.none() | st.binary(max_size=9) | st.sampled_from([b"k" * 130, b"k" * 131])
HEADERS = st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3
).map(lambda headers: headers or ())
TIMES = st.integers(0, 2**45) | st.sampled_from([2**62, 2**63 - 1])
RECORDS = st.lists(
    st.builds(Record, st.just(0), TIMES, KEYS, BLOBS, HEADERS), min_size=1, max_size=60
)
PARTITIONS = 5
ALL = ColumnNames(key="key", headers="headers", timestamp="timestamp")


@dataclass
class Collected:
    """Replaces a producer's core and collects batches."""

    settings: ProducerSettings
    batches: list[tuple[int, list[Record]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    turn: int = -1

    def partitions(self, _: str) -> list[int]:
        return list(range(PARTITIONS))

    def next_partition(self, _: str) -> int:
        self.turn = (self.turn + 1) % PARTITIONS
        return self.turn

    def append_batch(
        self, _: str, partition: int, body: memoryview, count: int, first_ms: int, max_ms: int
    ) -> bool:
        records = list(decode_records(bytes(body), count, 0, first_ms))
        assert max(record.timestamp for record in records) == max_ms
        assert records[0].timestamp == first_ms
        assert [record.offset for record in records] == list(range(count))
        self.batches.append((partition, records))
        self.bodies.append(bytes(body))
        return True

    def of(self, partition: int) -> list[Record]:
        return [
            record._replace(offset=0)
            for place, records in self.batches
            if place == partition
            for record in records
        ]


def table_of(records: list[Record]) -> pa.Table:
    headers = [[{"key": k, "value": v} for k, v in record.headers] for record in records]
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )


def sent(table: pa.Table, names: ColumnNames = ALL, **changed: Any) -> Collected:
    collected = Collected(ProducerSettings(**changed))
    batches = TableBatches(cast("ProducerCore", collected), "t", table, names)
    while batches.take():
        pass
    assert batches.count == sum(len(records) for _, records in collected.batches)
    return collected


@BUSY
@given(RECORDS, st.integers(100, 20_000), st.integers(0, 5))
def test_rows_go_where_their_keys_belong_in_their_order(
    records: list[Record], batch_bytes: int, cut: int
) -> None:
    table = table_of(records)
    table = pa.concat_tables([table.slice(cut), table.slice(0, cut)])
    records = records[cut:] + records[:cut]
    found = sent(table, batch_bytes=batch_bytes)
    for partition in range(PARTITIONS):
        keyed = [record for record in found.of(partition) if record.key is not None]
        assert keyed == [
            record
            for record in records
            if record.key is not None and partition_of_key(record.key, PARTITIONS) == partition
        ]
    without = [record for place in range(PARTITIONS) for record in found.of(place)]
    assert sorted(record for record in map(repr, without)) == sorted(map(repr, records))


@BUSY
@given(RECORDS, st.integers(100, 20_000))
def test_batches_hold_the_bytes_that_records_have(records: list[Record], batch_bytes: int) -> None:
    names = ColumnNames(key="key", headers="headers", timestamp="timestamp", partition=3)
    found = sent(table_of(records), names, batch_bytes=batch_bytes)
    assert found.of(3) == records
    begin = 0
    for (_, batch), body in zip(found.batches, found.bodies, strict=True):
        count = len(batch)
        of_batch = records[begin : begin + count]
        begin += count
        assert body == encode_records(of_batch, range(count), of_batch[0].timestamp)
        assert count == 1 or len(body) <= batch_bytes
        if begin < len(records):  # the next record would not have fitted
            both = [*of_batch, records[begin]]
            assert sum(map(record_size, both)) > batch_bytes - 100


@BUSY
@given(RECORDS, st.integers(100, 2_000))
def test_rows_without_keys_fill_batches_for_one_partition_after_another(
    records: list[Record], batch_bytes: int
) -> None:
    table = table_of(records).drop_columns(["key"])
    names = ColumnNames(headers="headers", timestamp="timestamp")
    found = sent(table, names, batch_bytes=batch_bytes)
    in_turn = [record._replace(offset=0) for _, batch in found.batches for record in batch]
    assert in_turn == [record._replace(key=None) for record in records]
    places = [place for place, _ in found.batches]
    assert places == [n % PARTITIONS for n in range(len(places))]


@BUSY
@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(0, 3))
def test_a_column_of_keys_is_hashed_as_each_key_is(keys: list[bytes | None], skip: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skip)
    assert murmur2_of(column).tolist() == [murmur2(key or b"") for key in keys[skip:]]


def test_few_long_keys_among_many_are_hashed_as_well() -> None:
    keys = [b"%d" % n for n in range(100)] + [b"long" * 1_000 + b"123"]
    assert murmur2_of(pa.array(keys)).tolist() == [murmur2(key) for key in keys]


@BUSY
@given(st.lists(KEYS, min_size=1, max_size=30))
def test_librdkafkas_partitioners_hash_columns_as_they_hash_keys(keys: list[bytes | None]) -> None:
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": ["x"] * len(keys)})
    hashes = {"consistent": crc32_partition, "consistent_random": crc32_partition}
    for name in ("consistent", "consistent_random", "murmur2", "murmur2_random"):
        settings = SimpleNamespace(
            partitioner=name,
            partitioner_ignore_keys=False,
            batch_bytes=16_384,
            record_bytes_max=1_000_000,
        )
        collected = Collected(cast("ProducerSettings", settings))
        batches = TableBatches(cast("ProducerCore", collected), "t", table, ColumnNames())
        while batches.take():
            pass
        for partition in range(PARTITIONS):
            for record in collected.of(partition):
                if record.key or (record.key == b"" and name != "consistent_random"):
                    wanted = hashes.get(name, partition_of_key)(record.key, PARTITIONS)
                elif name in ("consistent", "murmur2"):
                    wanted = hashes.get(name, partition_of_key)(b"", PARTITIONS)
                else:
                    wanted = 0  # whose turn it was
                assert partition == wanted
