"""Avro values of rows, without Spark: what fastavro itself would change without an error."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import TimestampType

from raylog.client.schemas import AvroSerializer, Schema, SchemaRegistry
from raylog.raydp_jobs.pipelines.avro import AvroSchema
from raylog.raydp_jobs.pipelines.registered import RowsAs, ValuesOf
from raylog.sink.rows import BadRow
from tests.worlds.servers import registry as fake_registry

TIMES = {"type": "long", "logicalType": "timestamp-micros"}


def of_one(kind: Any) -> AvroSchema:
    """A schema of records with one field, x, as a task has it."""
    fields = [{"name": "x", "type": kind}]
    schema = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    found: AvroSchema = pickle.loads(pickle.dumps(schema))
    return found


def decimals(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with fake_registry.running() as fake, SchemaRegistry(fake.url) as client:
        yield client


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker whose time zone repeats an hour."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def inner(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "I", "fields": [{"name": "y", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "value", "at"),
    [
        ("boolean", None, "x"),
        ({"type": "array", "items": "boolean"}, [True, None], "x"),
        ({"type": "map", "values": "boolean"}, {"a": None}, "x"),
        (inner("boolean"), Row(y=None), "y"),
        (["null", inner("boolean")], Row(y=None), "y"),
    ],
)
def test_null_is_not_written_as_false(kind: Any, value: Any, at: str) -> None:
    with pytest.raises(BadRow, match=f"{at}: expected boolean, found null"):
        of_one(kind).encode(Row(x=value))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["null", "boolean"], None),
        ({"type": "array", "items": ["null", "boolean"]}, [None, True]),
        ({"type": "map", "values": ["boolean", "null"]}, {"a": None, "b": False}),
        (["null", {"type": "array", "items": ["null", inner("int")]}], [None, {"y": 1}]),
        (decimals(2, 2), Decimal("0.00")),
        (decimals(38, 2), Decimal("-999999999999999999999999999999999999.99")),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    ],
)
def test_values_come_back(kind: Any, value: Any) -> None:
    schema = of_one(kind)
    assert schema.decode(schema.encode(Row(x=value))) == ({"x": value}, None)


@pytest.mark.parametrize("number", ["100.00", "-1234567.89"])
def test_a_decimal_beyond_its_precision_is_no_value(number: str) -> None:
    """Fastavro rounds it, and Spark then fails the batch."""
    value = of_one(["null", decimals(30, 2)]).encode(Row(x=Decimal(number)))
    record, reason = of_one(["null", decimals(4, 2)]).decode(value)
    assert record is None
    assert reason is not None
    assert "x: expected decimal(4,2), found" in reason


def test_a_decimal_of_another_schema_with_too_many_digits_is_no_value(
    registry: SchemaRegistry,
) -> None:
    """Spark would round it, or fail the batch."""
    written = AvroSerializer(registry, of_one(decimals(30, 3)).text)
    values = ValuesOf("avro", registry.core.settings.url[0], of_one(decimals(4, 2)).text)
    for number in ("12.345", "99.999", "100.000"):
        found = values.decode(written("t", {"x": Decimal(number)}), "t")
        assert found == (None, f"x: expected decimal(4,2), found {number}")


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("second", [1_761_438_600, 1_761_442_200])
def test_times_of_the_repeated_hour_are_written_as_they_are(second: int) -> None:
    kinds = [TIMES, {"type": "array", "items": {**TIMES, "logicalType": "timestamp-millis"}}]
    local = TimestampType().fromInternal(second * 1_000_000)
    at = datetime.fromtimestamp(second, UTC)
    for kind, value, expected in zip(kinds, [local, [local]], [at, [at]], strict=True):
        schema = of_one(kind)
        assert schema.decode(schema.encode(Row(x=value))) == ({"x": expected}, None)


@pytest.mark.usefixtures("berlin")
def test_values_of_a_registry_are_checked_too(registry: SchemaRegistry) -> None:
    url = registry.core.settings.url[0]
    fields = [{"name": "ok", "type": "boolean"}, {"name": "at", "type": TIMES}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    number = registry.register("out-value", Schema(text)).id
    rows = RowsAs("avro", url, "out", number, "out-value")
    with pytest.raises(BadRow, match="ok: expected boolean, found null"):
        rows.encode(Row(ok=None, at=datetime(2026, 1, 1)))  # noqa: DTZ001  # as Spark has it
    local = TimestampType().fromInternal(1_761_438_600_000_000)
    value = rows.encode(Row(ok=True, at=local))
    at = datetime.fromtimestamp(1_761_438_600, UTC)
    assert ValuesOf("avro", url, text).decode(value, "out") == ({"ok": True, "at": at}, None)
