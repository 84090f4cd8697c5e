"""Values in a schema registry's wire format: what views make of them, and what sinks write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from raylog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistry,
)
from raylog.client.schemas.protobuf_files import compiled
from raylog.raydp_jobs.pipelines.output import records
from raylog.raydp_jobs.pipelines.reading import parsed
from raylog.raydp_jobs.pipelines.spec import BadSpec, TopicSink, TopicSource
from tests.spark.test_tombstones import RECORD
from tests.support.protos import message
from tests.worlds.servers import registry as fake_registry

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": ["null", "string"]}],
    }
)
AVRO_2 = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]})
JSON = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with fake_registry.running() as fake, SchemaRegistry(fake.url) as client:
        yield client


def url_of(registry: SchemaRegistry) -> str:
    return registry.core.settings.url[0]


def source(registry: SchemaRegistry, form: str, **fields: Any) -> TopicSource:
    if form == "json-schema":
        fields["schema"] = "n INT NOT NULL"
    found = {"topics": ["t"], "format": form, "registry": url_of(registry), **fields}
    return TopicSource.model_validate(found)


def read(spark: SparkSession, source: TopicSource, *values: bytes | None) -> list[Row]:
    at = datetime(2026, 1, 1)  # noqa: DTZ001  # Spark takes the session's zone
    rows = [(b"k", value, "t", 0, offset, at, None) for offset, value in enumerate(values)]
    return parsed(spark.createDataFrame(rows, RECORD), source, "sources.rows").collect()


def test_avro_is_read_by_what_it_was_written_with(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    old = AvroSerializer(registry, AVRO)("t", {"n": 5, "s": "a"})
    new = AvroSerializer(registry, AVRO_2)("t", {"n": 2**40})
    rows = read(spark, source(registry, "avro"), old, new, None, b"plain", old[:4] + b"\x63" + b"x")
    assert [row["n"] for row in rows] == [5, 2**40, None, None, None]
    assert [row["_tombstone"] for row in rows] == [False, False, True, False, False]
    reasons = [row["_reason"] for row in rows]
    assert reasons[:3] == [None, None, None]
    assert "expected the wire format" in reasons[3]
    assert "code 40403" in reasons[4]


def test_json_is_checked_by_its_schema_and_by_the_columns(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    write = JsonSchemaSerializer(registry, JSON, validate=False)
    good, bad = write("t", {"n": 5}), write("t", {"n": "x"})
    strange = JsonSchemaSerializer(registry, "{}")("t", {"m": 1})
    rows = read(spark, source(registry, "json-schema"), good, bad, strange, None, good[5:])
    assert [row["n"] for row in rows[:1]] == [5]
    reasons = [row["_reason"] for row in rows]
    assert (reasons[0], reasons[3]) == (None, None)
    assert "is not of type 'integer'" in reasons[1]
    assert reasons[2] == "n is missing, expected int"
    assert "expected the wire format" in reasons[4]


def test_protobuf_has_the_columns_of_its_message(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    kind = message("shop.Order")
    order = kind(id="7", price={"units": 5}, placed={"seconds": 9}, items={"a": 1})
    write = ProtobufSerializer(registry, kind)
    (full, empty, gone, bad) = read(
        spark,
        source(registry, "protobuf"),
        write("t", order),
        write("t", kind()),
        None,
        write("t", order)[:-1],
    )
    assert full["id"] == "7"
    assert full["price"].asDict(recursive=True) == {"units": 5, "currency": None}
    assert full["items"] == {"a": 1}
    assert full["placed"].timestamp() == 9
    assert (empty["id"], empty["price"], empty["items"]) == ("", None, {})
    assert (gone["_reason"], gone["_tombstone"]) == (None, True)
    assert "expected a message shop.Order" in bad["_reason"]


def test_other_messages_and_times_out_of_range_have_reasons(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    order, basket = message("shop.Order"), message("shop.Basket")
    write = ProtobufSerializer(registry, order)
    late = write("t", order(placed={"seconds": 253_402_300_800}))
    other = ProtobufSerializer(registry, basket)("t", basket(lines=[{"item": "x"}]))
    rows = read(spark, source(registry, "protobuf"), late, other, write("t", order(id="7")))
    assert [row["id"] for row in rows] == [None, None, "7"]
    reasons = [row["_reason"] for row in rows]
    assert reasons[0].startswith("Timestamp is not valid: ")
    assert reasons[1:] == ["expected a message shop.Order, found shop.Basket", None]


def test_json_numbers_keep_their_digits(spark: SparkSession, registry: SchemaRegistry) -> None:
    found = {"topics": ["out"], "format": "json-schema", "schema": "n DECIMAL(30,10)"}
    registry.register("out-value", Schema("{}", "JSON"))
    data = written(spark, registry, "json-schema", "12345678901234567.8901 n")
    assert data[5:] == b'{"n":12345678901234567.8901}'
    (row,) = read(spark, TopicSource.model_validate({**found, "registry": url_of(registry)}), data)
    assert row["n"] == Decimal("12345678901234567.8901")


def test_large_numbers_are_keys_of_maps(spark: SparkSession, registry: SchemaRegistry) -> None:
    text = 'syntax = "proto3"; message M { map<uint64, int32> m = 1; }'
    pool = DescriptorPool()
    pool.Add(compiled({"m.proto": text}, {})["m.proto"])
    kind: Any = GetMessageClass(pool.FindMessageTypeByName("M"))
    large = kind(m={2**64 - 1: 5})
    data = ProtobufSerializer(registry, kind)("t", large)
    (row,) = read(spark, source(registry, "protobuf"), data)
    assert row["m"] == {Decimal(2**64 - 1): 5}
    columns = f"map(cast({2**64 - 1} as decimal(20,0)), 5) m"
    again = written(spark, registry, "protobuf", columns, subject="t-value")
    assert ProtobufDeserializer(registry, kind)("out", again) == large


def written(
    spark: SparkSession, registry: SchemaRegistry, value: str, columns: str, **fields: Any
) -> bytes:
    found = {"topic": "out", "value": value, "registry": url_of(registry), **fields}
    (row,) = records(spark.sql(f"select {columns}"), TopicSink.model_validate(found)).collect()
    return bytes(row["value"])


def test_sinks_write_what_others_read(
    spark: SparkSession, registry: SchemaRegistry, tmp_path: Path
) -> None:
    avro_file, json_file = tmp_path / "row.avsc", tmp_path / "row.json"
    avro_file.write_text(AVRO)
    json_file.write_text(JSON)
    columns = "cast(5 as int) n, 'a' s"
    data = written(spark, registry, "avro", columns, schema_file=avro_file)
    assert AvroDeserializer(registry)("out", data) == {"n": 5, "s": "a"}
    assert written(spark, registry, "avro", columns) == data

    data = written(spark, registry, "json-schema", columns, schema_file=json_file, subject="j")
    assert JsonSchemaDeserializer(registry)("out", data) == {"n": 5, "s": "a"}

    kind = message("shop.Order")
    ProtobufSerializer(registry, kind)("orders", kind())
    order = (
        "'7' id, named_struct('units', 5L, 'currency', named_struct('code', 'SEK')) price, "
        "timestamp '2026-01-31 12:00:00' placed, map('a', cast(1 as int)) items"
    )
    data = written(spark, registry, "protobuf", order, subject="orders-value")
    found = ProtobufDeserializer(registry, kind)("out", data)
    assert (found.id, found.price.units, found.price.currency.code) == ("7", 5, "SEK")
    assert dict(found.items) == {"a": 1}
    placed = found.placed.ToDatetime(tzinfo=UTC)
    assert placed == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_rows_that_do_not_fit_are_reported(spark: SparkSession, registry: SchemaRegistry) -> None:
    AvroSerializer(registry, AVRO)("out", {"n": 5, "s": None})
    with pytest.raises(BadSpec, match=r"sink\.value: column s: expected string, found none"):
        written(spark, registry, "avro", "cast(5 as int) n")
    with pytest.raises(Exception, match=r"BadRow: row .* does not fit the schema"):
        written(spark, registry, "avro", "cast(null as int) n, 'a' s")


def test_a_registry_without_the_schema_refuses_the_pipeline(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    with pytest.raises(BadSpec, match=r'sources\.rows\.registry: .*subject "t-value" not found'):
        read(spark, source(registry, "avro"))
    JsonSchemaSerializer(registry, JSON)("t", {"n": 1})
    with pytest.raises(BadSpec, match="of the type PROTOBUF in t-value, found JSON"):
        read(spark, source(registry, "protobuf"))
