"""Schema registry values in tasks, without Spark: what is serialized, read and reported."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import Row

from raylog.client.schemas import (
    AvroSerializer,
    ProtobufSerializer,
    RegistryUnavailable,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
)
from raylog.client.schemas.protobuf_files import compiled, descriptor_of
from raylog.raydp_jobs.pipelines import registered
from raylog.raydp_jobs.pipelines.protobuf_rows import fill, row_of
from raylog.raydp_jobs.pipelines.registered import RowsAs, ValuesOf, schema_in
from raylog.raydp_jobs.pipelines.spec import BadSpec, load
from raylog.sink.rows import BadRow
from tests.support.protos import message
from tests.worlds.servers import registry as fake_registry
from tests.worlds.servers.registry import FakeRegistry, Reply

AVRO = '{"type":"record","name":"Row","fields":[{"name":"n","type":"int"}]}'


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry.running() as fake:
        yield fake


@pytest.fixture
def registry(fake: FakeRegistry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(fake.url) as client:
        yield client


def test_pickled_decoder_works_in_a_task(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    data = AvroSerializer(registry, AVRO)("t", {"n": 5})
    values = pickle.loads(pickle.dumps(ValuesOf("avro", fake.url, AVRO)))
    assert values.decode(data, "t") == ({"n": 5}, None)
    assert values.decode(None, "t") == (None, "there is no value")
    record, reason = values.decode(data + b"x", "t")
    assert record is None
    assert "found 1 bytes after it" in reason
    assert "code 40403" in values.decode(b"\0\0\0\0\x63x", "t")[1]


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.trouble = lambda call: Reply.error(503, 50301, "later")
    with SchemaRegistry(fake.url, max_retries=0) as client:
        monkeypatch.setattr(registered, "client_of", lambda url: client)
        with pytest.raises(RegistryUnavailable):
            ValuesOf("avro", fake.url).decode(b"\0\0\0\0\1x", "t")


def test_pickled_encoder_works_in_a_task(
    fake: FakeRegistry, registry: SchemaRegistry, tmp_path: Path
) -> None:
    file = tmp_path / "row.json"
    file.write_text('{"type":"object","required":["n"]}')
    found = schema_in(fake.url, "json-schema", "out-value", file, "sink.registry")
    rows = RowsAs("json-schema", fake.url, "out", found.id, "out-value")
    rows = pickle.loads(pickle.dumps(rows))
    assert rows.encode('{"n":1}') == b'\0\0\0\0\1{"n":1}'
    assert rows.encode(None) is None
    with pytest.raises(BadRow, match=r'row \{"m": 1\} does not fit the schema'):
        rows.encode('{"m": 1}')


def test_json_is_read_and_written_as_it_is(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    """Python's floats would change the number."""
    registry.register("t-value", Schema('{"type":"object"}', "JSON"))
    found = registry.latest("t-value")
    text = '{"amount":12345678901234567.8901}'
    data = RowsAs("json-schema", fake.url, "t", found.id, "t-value").encode(text)
    assert data == b"\0\0\0\0\1" + text.encode()
    values = ValuesOf("json-schema", fake.url)
    assert values.decode(data, "t") == (text.encode(), None)
    assert values.decode(data + b"}", "t")[0] is None
    assert found.guid is not None
    with_guid = b"\1" + UUID(found.guid).bytes + text.encode()
    assert values.decode(with_guid, "t") == (text.encode(), None)


def test_references_stand_inside_an_avro_schema(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    from raylog.client.schemas import Reference

    registry.register("rows", Schema(AVRO))
    fields = [{"name": "a", "type": "Row"}, {"name": "b", "type": "Row"}]
    pair = json.dumps({"type": "record", "name": "Pair", "fields": fields})
    registry.register("t-value", Schema(pair, "AVRO", (Reference("Row", "rows", 1),)))
    found = json.loads(schema_in(fake.url, "avro", "t-value", None, "f").avro_text("f"))
    assert found["fields"][0]["type"]["fields"] == [{"name": "n", "type": "int"}]
    assert found["fields"][1]["type"] == "Row"
    registry.register("i-value", Schema('{"type":"int"}'))
    with pytest.raises(BadSpec, match="f: expected an Avro record"):
        schema_in(fake.url, "avro", "i-value", None, "f").avro_text("f")


def test_messages_are_rows_and_back() -> None:
    kind = message("shop.Order")
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    row = {
        "id": "7",
        "price": {"units": 5, "currency": {"code": "SEK"}},
        "placed": at,
        "items": {"a": 1},
    }
    assert row_of(fill(kind(), row), kind.DESCRIPTOR) == row
    assert row_of(kind(), kind.DESCRIPTOR) == {"id": "", "price": None, "placed": None, "items": {}}
    several = message("shop.Basket")
    basket = {"lines": [{"item": "x", "count": 2}, {"item": "", "count": 0}]}
    assert row_of(fill(several(), basket), several.DESCRIPTOR) == basket
    assert fill(kind(), {"price": {}}).HasField("price")


def test_enums_are_their_names_and_large_numbers_decimals() -> None:
    field = FieldDescriptorProto(name="f", label=FieldDescriptorProto.LABEL_REPEATED)
    assert row_of(field, descriptor_of(FieldDescriptorProto))["label"] == "LABEL_REPEATED"
    assert fill(FieldDescriptorProto(), {"label": "LABEL_REPEATED"}).label == field.label
    with pytest.raises(KeyError):
        fill(FieldDescriptorProto(), {"label": "NONE"})
    assert row_of(DescriptorProto(), descriptor_of(DescriptorProto))["name"] is None


def test_large_numbers_are_decimals() -> None:
    from google.protobuf.wrappers_pb2 import UInt64Value

    row = {"value": Decimal(2**64 - 1)}
    assert row_of(UInt64Value(value=2**64 - 1), descriptor_of(UInt64Value)) == row
    assert fill(UInt64Value(), {"value": Decimal(2**64 - 1)}).value == 2**64 - 1


def of(text: str) -> Any:
    """Return the class of the message M in a .proto file."""
    file = compiled({"m.proto": text}, {})["m.proto"]
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("M"))


def test_large_numbers_are_keys_too() -> None:
    kind = of('syntax = "proto3"; message M { map<uint64, int32> a = 1; map<fixed64, M> b = 2; }')
    row = {"a": {Decimal(2**64 - 1): 1}, "b": {Decimal(7): {"a": {}, "b": {}}}}
    found = row_of(fill(kind(), row), kind.DESCRIPTOR)
    assert found == row
    assert [type(key) for name in row for key in found[name]] == [Decimal, Decimal]


def values_of(registry: SchemaRegistry, kind: Any) -> ValuesOf:
    """Register a message's schema; return the decoder of a source with its columns."""
    ProtobufSerializer(registry, kind)("t", kind())
    found = schema_in(registry.core.settings.url[0], "protobuf", "t-value", None, "f")
    name = kind.DESCRIPTOR.full_name
    return ValuesOf("protobuf", registry.core.settings.url[0], name, found.id)


def test_protobuf_is_read_as_its_message(registry: SchemaRegistry) -> None:
    kind = message("shop.Basket")
    data = ProtobufSerializer(registry, kind)("t", kind(lines=[{"item": "x"}]))
    record, _ = values_of(registry, kind).decode(data, "t")
    assert record == {"lines": [{"item": "x", "count": 0}]}


def test_another_message_is_refused(registry: SchemaRegistry) -> None:
    basket = message("shop.Basket")
    data = ProtobufSerializer(registry, basket)("t", basket(lines=[{"item": "x"}]))
    values = values_of(registry, message("shop.Order"))
    reason = "expected a message shop.Order, found shop.Basket"
    assert values.decode(data, "t") == (None, reason)


COLUMNS = """
syntax = "proto3";
message M {
  string a = 1; int64 n = 2; In in = 3; map<string, In> by_name = 4; repeated int64 many = 5;
  enum Kind { NONE = 0; }
  Kind kind = 7;
}
message In { string x = 1; }
"""


def test_fields_may_be_added_removed_renamed_and_widened(registry: SchemaRegistry) -> None:
    """Names are not part of a value. A newer schema's enums have their own names."""
    values = values_of(registry, of(COLUMNS))
    other = of("""
        syntax = "proto3";
        message M {
          string renamed = 1; int32 n = 2; In in = 3; map<string, In> by_name = 4;
          repeated int32 many = 5; M added = 6;
          enum Kind { NONE = 0; NEW = 1; }
          Kind kind = 7;
        }
        message In { bytes y = 2; }
        """)
    found = {"renamed": "a", "n": 2, "in": {"y": b"y"}, "by_name": {"k": {}}, "many": [3]}
    data = ProtobufSerializer(registry, other)("t", other(**found, added={"n": 1}, kind="NEW"))
    row = {"a": "a", "n": 2, "in": {}, "by_name": {"k": {}}, "many": [3], "kind": "NEW"}
    assert values.decode(data, "t") == (row, None)


@pytest.mark.parametrize(
    ("fields", "value", "said"),
    [
        ("string n = 2;", {"n": "5"}, "M.n: expected bigint, found string"),
        ("double n = 2;", {"n": 5}, "M.n: expected bigint, found double"),
        ("bytes b = 1;", {"b": b"b"}, "M.b: expected string, found binary"),
        ("repeated int64 n = 2;", {"n": [5]}, "M.n: expected bigint, found array<bigint>"),
        ("In in = 3;", {"in": {"x": 1}}, "In.x: expected string, found int"),
        ("string in = 3;", {"in": "x"}, "M.in: expected struct, found string"),
        ("map<string, int32> m = 4;", {"m": {"k": 1}}, "value: expected struct, found int"),
        ("map<int32, In> m = 4;", {"m": {1: {}}}, "key: expected string, found int"),
    ],
)
def test_a_field_of_another_type_is_refused(
    registry: SchemaRegistry, fields: str, value: dict[str, Any], said: str
) -> None:
    values = values_of(registry, of(COLUMNS))
    other = of(f'syntax = "proto3"; message M {{ {fields} }} message In {{ int32 x = 1; }}')
    data = ProtobufSerializer(registry, other)("t", other(**value))
    record, reason = values.decode(data, "t")
    assert record is None
    assert said in (reason or "")


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**62, -(2**62)])
def test_a_time_out_of_range_is_a_reason(registry: SchemaRegistry, seconds: int) -> None:
    kind = message("shop.Order")
    data = ProtobufSerializer(registry, kind)("t", kind(placed={"seconds": seconds}))
    record, reason = values_of(registry, kind).decode(data, "t")
    assert record is None
    assert (reason or "").startswith("Timestamp is not valid: ")


def test_text_that_is_not_utf8_is_a_reason(registry: SchemaRegistry) -> None:
    """Only possible with proto2, whose strings Protobuf does not check."""
    kind = of('syntax = "proto2"; message M { optional string a = 1; }')
    data = ProtobufSerializer(registry, kind)("t", kind.FromString(b"\x0a\x01\xff"))
    record, reason = values_of(registry, kind).decode(data, "t")
    assert record is None
    assert "can't decode byte 0xff" in (reason or "")


def test_missing_columns_are_no_fault_of_the_record(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    kind = message("shop.Order")
    data = ProtobufSerializer(registry, kind)("t", kind())
    with pytest.raises(SchemaNotFound):
        ValuesOf("protobuf", fake.url, "shop.Order", 99).decode(data, "t")


def test_null_in_a_list_is_a_bad_row(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    kind = message("shop.Basket")
    ProtobufSerializer(registry, kind)("t", kind())
    found = schema_in(fake.url, "protobuf", "t-value", None, "f")
    rows = RowsAs("protobuf", fake.url, "t", found.id, "t-value", "shop.Basket")
    with pytest.raises(BadRow, match=r"row \{'lines': \[None\]\} does not fit the schema"):
        rows.encode(Row(lines=[None]))


PIPELINE = """
name = "p"
checkpoint = "c"
[sources.views]
topics = ["views"]
{source}
[transform]
sql = "SELECT * FROM views"
[sink]
topic = "out"
{sink}
"""
URL = 'registry = "http://r"'


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        ('format = "protobuf"', "", "sources.views: registry: expected with format 'protobuf'"),
        ('format = "text"\n' + URL, "", "registry: not expected with format 'text'"),
        ('format = "json-schema"\n' + URL, "", "schema: expected with format 'json-schema'"),
        ('format = "avro"', "", "schema_file: expected with format 'avro'"),
        ('format = "avro"\nregistry = "r:1"', "", "sources.views.registry: String should match"),
        ('format = "text"\nsubject = "s"', "", "subject: expected together with registry"),
        ('format = "avro"\nmessage = "M"\n' + URL, "", "message: not expected with format 'avro'"),
        (
            'format = "json-schema"\nschema = "n INT"\nschema_file = "f"\n' + URL,
            "",
            "schema_file: not expected with format 'json-schema'",
        ),
        ('format = "text"', 'value = "avro"', "sink: schema_file: expected with value 'avro'"),
        ('format = "text"', 'value = "json-schema"', "sink: registry: expected with value"),
        ('format = "text"', 'value = "raw"\n' + URL, "sink: registry: not expected with value"),
    ],
)
def test_conflicting_source_and_sink_settings_are_refused(
    tmp_path: Path, source: str, sink: str, said: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(PIPELINE.format(source=source, sink=sink))
    with pytest.raises(BadSpec, match=said):
        load(file)


def test_a_pattern_needs_a_subject(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    text = PIPELINE.format(source='format = "avro"\n' + URL, sink="")
    file.write_text(text.replace('topics = ["views"]', 'pattern = "v.*"'))
    with pytest.raises(BadSpec, match="subject: expected with several topics or a pattern"):
        load(file)
    file.write_text(text.replace('topics = ["views"]', 'pattern = "v.*"\nsubject = "v"'))
    assert load(file).sources["views"].subject == "v"
