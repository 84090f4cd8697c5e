"""The columns of a dataset that was read from topics.

| column | type | notes |
|---|---|---|
| `topic` | string | |
| `partition` | int32 | |
| `offset` | int64 | increases within a partition, with gaps |
| `timestamp` | timestamp[ms, UTC] | null if the record has none |
| `timestamp_type` | int8 | 0: the producer's time (CreateTime), 1: the broker's (LogAppendTime) |
| `key`, `value` | binary | may be null |
| `headers` | list of struct of `key` string, `value` binary | null if the record has none |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.client.arrow.tables import TIMESTAMP_TYPE, timestamps

if TYPE_CHECKING:
    from raylog.client.arrow.decoding import Columns
    from raylog.client.cluster import TopicPartition

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)


def rows_of(key: TopicPartition, columns: Columns) -> pa.RecordBatch:
    """Convert decoded records of a partition to a batch of `SCHEMA`."""
    count = len(columns.offsets)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(key.topic, count),
            pa.repeat(pa.scalar(key.partition, pa.int32()), count),
            pa.array(columns.offsets),
            timestamps(columns.timestamps),
            pa.array(columns.timestamp_types.astype(np.int8)),
            columns.keys,
            columns.values,
            _null_if_empty(columns.headers),
        ],
        schema=SCHEMA,
    )


def _null_if_empty(headers: pa.ListArray) -> pa.ListArray:
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    if pc.all(is_empty).as_py():
        return pa.nulls(len(headers), HEADERS_TYPE)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, HEADERS_TYPE, mask=is_empty)
