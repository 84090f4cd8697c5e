"""A topic's interceptors on a batch: what is stored, what is read, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from raylog.actors.interceptors.api import Interceptor, Record, Rejected
from raylog.actors.interceptors.chain import RECORDS_MAX, Chain, InterceptorFailed, encoded
from raylog.wire.compression import Codec
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.errors import ErrorCode, InvalidRecord, MessageTooLarge
from raylog.wire.records import (
    BatchHeader,
    check_crc,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from raylog.wire.records import Record as StoredRecord

NOW_MS = 1_000_000
Change = Callable[[Sequence[Record]], Iterable[Any]]


def batch_of(*values: bytes, **header: Any) -> bytes:
    return encode_batch(
        [StoredRecord(i, NOW_MS + i, b"k", value, [("h", b"1")]) for i, value in enumerate(values)],
        **header,
    )


class Scripted(Interceptor):
    """An interceptor scripted by a test."""

    name = "scripted"

    def __init__(self, change: Change) -> None:
        self.change = change
        self.seen: list[tuple[str, Sequence[Record]]] = []

    def on_produce(self, topic: str, records: Sequence[Record]) -> Iterable[Record | Rejected]:
        self.seen.append((topic, records))
        return self.change(records)

    def on_fetch(self, topic: str, records: Sequence[Record]) -> Iterable[Record]:
        self.seen.append((topic, records))
        return self.change(records)


class ProduceOnly(Interceptor):
    name = "produce-only"

    def on_produce(self, topic: str, records: Sequence[Record]) -> Iterable[Record]:
        return list(records)


def chain_of(*changes: Change) -> Chain:
    return Chain("t", tuple(map(Scripted, changes)))


def upper(records: Sequence[Record]) -> list[Record]:
    return [record._replace(value=(record.value or b"").upper()) for record in records]


def stored(chain: Chain, batch: bytes, header: BatchHeader | None = None) -> list[StoredRecord]:
    """What is stored of a batch, looked at as a reader of the log does."""
    records, _ = chain.produced(batch, read_header(batch))
    again = encoded(header or read_header(batch), records)
    check_crc(again, read_header(again))
    return decode_batch(again)


# ---- produce ---------------------------------------------------------------------------------


def test_records_are_shown_in_order_with_their_position() -> None:
    one = Scripted(lambda records: records)
    batch = batch_of(b"a", b"b")
    records, changed = Chain("t", (one,)).produced(batch, read_header(batch))
    assert one.seen == [
        (
            "t",
            (
                Record(0, NOW_MS, b"k", b"a", (("h", b"1"),)),
                Record(1, NOW_MS + 1, b"k", b"b", (("h", b"1"),)),
            ),
        )
    ]
    assert (records, changed) == (one.seen[0][1], False)


def test_the_same_records_in_another_list_are_no_change() -> None:
    batch = batch_of(b"a", b"b")
    assert not Chain("t", (ProduceOnly(),)).produced(batch, read_header(batch))[1]


@pytest.mark.parametrize("codec", list(Codec))
def test_changed_records_keep_what_a_batch_promises(codec: Codec) -> None:
    batch = batch_of(b"a", b"b", codec=codec, producer_id=7, producer_epoch=1, base_sequence=40)
    header = read_header(batch)
    records, changed = chain_of(upper).produced(batch, header)
    assert changed
    again = encoded(header, records)
    assert read_header(again)._replace(crc=0, batch_length=0) == header._replace(
        crc=0, batch_length=0
    )
    assert [record.value for record in decode_batch(again)] == [b"A", b"B"]
    assert [record.headers for record in decode_batch(again)] == [[("h", b"1")]] * 2


def test_a_dropped_record_leaves_a_gap() -> None:
    batch = batch_of(b"a", b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=5)
    header = read_header(batch)
    records, _ = chain_of(lambda records: records[1:2]).produced(batch, header)
    again = read_header(encoded(header, records))
    assert [record.offset for record in records] == [1]
    assert (again.last_offset_delta, again.record_count) == (2, 1)
    assert (again.base_sequence, again.last_sequence) == (5, 7)


@pytest.mark.parametrize("codec", list(Codec))
def test_all_records_may_be_dropped(codec: Codec) -> None:
    batch = batch_of(b"a", b"b", codec=codec, producer_id=7, producer_epoch=0, base_sequence=5)
    header = read_header(batch)
    records, changed = chain_of(lambda _: []).produced(batch, header)
    assert (records, changed) == ((), True)
    again = read_header(encoded(header, records))
    assert (again.record_count, again.last_sequence, again.next_offset) == (0, 6, 2)
    assert again.max_timestamp == -1  # or a search for the latest record would end here
    assert again.codec is Codec.NONE  # librdkafka aborts on an empty compressed batch


def test_interceptors_are_called_in_turn_and_none_with_nothing() -> None:
    first = Scripted(lambda records: records[:1])
    second = Scripted(upper)
    assert [
        record.value for record in stored(Chain("t", (first, second)), batch_of(b"a", b"b"))
    ] == [b"A"]
    assert [len(records) for _, records in second.seen] == [1]
    third = Scripted(upper)
    stored(Chain("t", (Scripted(lambda _: []), third)), batch_of(b"a"))
    assert third.seen == []


def test_an_enriched_record_may_have_other_fields() -> None:
    def enrich(records: Sequence[Record]) -> Iterable[Record]:
        for record in records:
            yield Record(record.offset, 5, None, None, (*record.headers, ("by", None)))

    assert stored(chain_of(enrich), batch_of(b"a")) == [
        StoredRecord(0, 5, None, None, [("h", b"1"), ("by", None)])
    ]


def test_rejected_records_are_named() -> None:
    def refuse(records: Sequence[Record]) -> list[Record | Rejected]:
        return [records[0], Rejected(1, "too old"), Rejected(2, "too new")]

    batch = batch_of(b"a", b"b", b"c")
    with pytest.raises(InvalidRecord, match=r"record 1: scripted: too old; record 2") as refused:
        chain_of(refuse, upper).produced(batch, read_header(batch))
    assert refused.value.record_errors == (
        (1, "scripted: too old"),
        (2, "scripted: too new"),
    )


def test_transactional_batches_are_seen_and_stay_transactional() -> None:
    batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    records, _ = chain_of(upper).produced(batch, read_header(batch))
    again = read_header(encoded(read_header(batch), records))
    assert again.is_transactional
    assert again.producer_id == 7


def test_a_batch_of_too_many_records_is_refused_before_it_is_decoded() -> None:
    batch = batch_of(b"a")
    header = read_header(batch)._replace(record_count=RECORDS_MAX + 1)
    with pytest.raises(MessageTooLarge, match="200001 records"):
        chain_of(upper).produced(batch, header)


# ---- plug-ins that fail ----------------------------------------------------------------------


def exits(_records: Sequence[Record]) -> Iterable[Record]:
    raise SystemExit(3)


def breaks_in_between(records: Sequence[Record]) -> Iterable[Record]:
    yield records[0]
    raise KeyError("half way")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (exits, "interceptor 'scripted' failed: SystemExit: 3"),
        (breaks_in_between, "failed: KeyError: 'half way'"),
        (lambda _: None, "failed: TypeError"),
        (lambda _: ["a"], "returned a str instead of a Record"),
        (lambda records: [records[1], records[0]], "returned offset 0 behind 1"),
        (lambda records: [records[0], records[0]], "returned offset 0 behind 0"),
        (lambda records: [records[0]._replace(offset=9)], "offset 9, which it did not get"),
        (lambda records: [records[0]._replace(value="text")], "what is no record"),
        (lambda records: [records[0]._replace(key=3)], "what is no record"),
        (lambda records: [records[0]._replace(timestamp=1.5)], "what is no record"),
        (lambda records: [records[0]._replace(timestamp=-2)], "what is no record"),
        (lambda records: [records[0]._replace(headers={"a": b"b"})], "what is no record"),
        (lambda records: [records[0]._replace(headers=(("a", "b"),))], "what is no record"),
        (lambda records: [records[0]._replace(headers=("a",))], "what is no record"),
        (lambda _: [Rejected(7, "")], "rejected offset 7, which it did not get"),
    ],
)
def test_interceptor_failure_names_the_plug_in(change: Change, says: str) -> None:
    batch = batch_of(b"a", b"b")
    with pytest.raises(InterceptorFailed) as failed:
        chain_of(change).produced(batch, read_header(batch))
    assert says in str(failed.value)
    assert "'scripted'" in str(failed.value)
    assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_trace_says_who_is_at_work() -> None:
    batch = batch_of(b"a")
    trace: list[str] = []
    chain = Chain("t", (ProduceOnly(), Scripted(exits))).traced(trace)
    with pytest.raises(InterceptorFailed):
        chain.produced(batch, read_header(batch))
    assert trace == ["produce-only", "scripted"]


# ---- fetch -----------------------------------------------------------------------------------


def test_whether_a_chain_has_to_see_what_is_read() -> None:
    class Stranger:
        """An interceptor without a base class, as plug-ins may be."""

        name = "stranger"
        on_fetch = Scripted.on_fetch

    assert not Chain("t", (ProduceOnly(),)).intercepts_fetch
    assert chain_of(upper).intercepts_fetch
    assert Chain("t", (ProduceOnly(), Stranger())).intercepts_fetch  # type: ignore[arg-type]  # a half


def test_stored_batches_are_read_changed_where_they_change() -> None:
    first = batch_of(b"a", b"b", base_offset=10, codec=Codec.ZSTD)
    second = batch_of(b"C", base_offset=20)
    marker = encode_end_txn_marker(
        EndTxnMarker(True, 3), producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=21
    )
    cut = batch_of(b"d", base_offset=22)[:-1]

    def odd(records: Sequence[Record]) -> list[Record]:
        return [
            record._replace(value=(record.value or b"").upper())
            if record.value != (record.value or b"").upper()
            else record
            for record in records
            if record.offset != 11
        ]

    read = chain_of(odd).fetched(first + second + marker + cut)
    found = list(iter_batches(read))
    assert [header.base_offset for header, _ in found] == [10, 20, 21]
    assert found[0][0].next_offset == 12
    assert found[0][0].codec is Codec.ZSTD
    assert [record.value for record in decode_batch(found[0][1])] == [b"A"]
    assert bytes(found[1][1]) == second
    assert bytes(found[2][1]) == marker


def test_an_empty_batch_is_shown_to_nobody() -> None:
    batch = batch_of(b"a")
    empty = encoded(read_header(batch), ())
    one = Scripted(upper)
    assert Chain("t", (one,)).fetched(empty) == empty
    assert one.seen == []
