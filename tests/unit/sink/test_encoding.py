"""Encoding of whole columns, against the codecs for single records and keys."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.client.arrow.hashing import murmur2_of
from raylog.client.producer.partitioner import murmur2, partition_of_key
from raylog.sink.encoding import Columns, encode_batches, encoded_headers
from raylog.sink.keys import partitions_of_keys
from raylog.wire.compression import Codec
from raylog.wire.records import Record, decode_batch, encode_batch

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BLOBS = st.none() | st.binary(max_size=70) | st.sampled_from([b"k" * 8_192, b"v" * 63, b"v" * 64])
ROWS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-(2**40), 2**45),
        BLOBS,
        BLOBS,
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=40,
)


def columns_of(records: list[Record]) -> Columns:
    """The same as columns."""
    headers: list[Any] = [
        [{"key": key, "value": value} for key, value in record.headers] or None
        for record in records
    ]
    return Columns(
        np.array([record.timestamp for record in records], np.int64),
        pa.array([record.key for record in records], pa.large_binary()),
        pa.array([record.value for record in records], pa.large_binary()),
        encoded_headers(pa.array(headers, HEADERS)),
    )


@settings(deadline=None)
@given(ROWS, st.lists(st.integers(1, 39), max_size=3))
def test_batches_are_those_of_the_codec_for_records(records: list[Record], cuts: list[int]) -> None:
    bounds = sorted({0, len(records), *(each for each in cuts if each < len(records))})
    found = encode_batches(columns_of(records), bounds, Codec.NONE, None)
    assert found == [
        encode_batch(records[start:end], is_transactional=True)
        for start, end in itertools.pairwise(bounds)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_compressed(codec: Codec) -> None:
    records = [Record(n, 5, b"k", b"v" * 100, ()) for n in range(20)]
    (found,) = encode_batches(columns_of(records), [0, 20], codec, None)
    assert decode_batch(found) == records


@settings(deadline=None)
@given(st.lists(BLOBS, min_size=1, max_size=30), st.integers(1, 100), st.integers(0, 5))
def test_hashes_are_those_of_single_keys(
    keys: list[bytes | None], partitions: int, skipped: int
) -> None:
    left = keys[skipped:]
    column = pa.array(keys, pa.large_binary())[skipped:]
    assert murmur2_of(column).tolist() == [murmur2(key or b"") for key in left]
    assert partitions_of_keys(column, partitions).tolist() == [
        partition_of_key(key or b"", partitions) for key in left
    ]
