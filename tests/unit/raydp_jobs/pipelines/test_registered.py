"""Schema registry values in tasks, without Spark: what is serialized, read and reported."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from raylog.client.schemas import (
    AvroSerializer,
    ProtobufSerializer,
    RegistryUnavailable,
    SchemaRegistry,
)
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
    assert rows.encode('{"n": 1}') == b'\0\0\0\0\1{"n":1}'
    assert rows.encode(None) is None
    with pytest.raises(BadRow, match=r'row \{"m": 1\} does not fit the schema'):
        rows.encode('{"m": 1}')


def test_references_stand_inside_an_avro_schema(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    from raylog.client.schemas import Reference, Schema

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
    assert row_of(fill(kind(), row)) == row
    assert row_of(kind()) == {"id": "", "price": None, "placed": None, "items": {}}
    basket = {"lines": [{"item": "x", "count": 2}, {"item": "", "count": 0}]}
    assert row_of(fill(message("shop.Basket")(), basket)) == basket
    assert fill(kind(), {"price": {}}).HasField("price")


def test_enums_are_their_names_and_large_numbers_decimals() -> None:
    field = FieldDescriptorProto(name="f", label=FieldDescriptorProto.LABEL_REPEATED)
    assert row_of(field)["label"] == "LABEL_REPEATED"
    assert fill(FieldDescriptorProto(), {"label": "LABEL_REPEATED"}).label == field.label
    with pytest.raises(KeyError):
        fill(FieldDescriptorProto(), {"label": "NONE"})
    assert row_of(DescriptorProto())["name"] is None


def test_large_numbers_are_decimals() -> None:
    from google.protobuf.wrappers_pb2 import UInt64Value

    assert row_of(UInt64Value(value=2**64 - 1)) == {"value": Decimal(2**64 - 1)}
    assert fill(UInt64Value(), {"value": Decimal(2**64 - 1)}).value == 2**64 - 1


def test_protobuf_is_written_as_its_message(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    kind = message("shop.Basket")
    ProtobufSerializer(registry, kind)("t", kind())
    data = ProtobufSerializer(registry, kind)("t", kind(lines=[{"item": "x"}]))
    record, _ = ValuesOf("protobuf", fake.url).decode(data, "t")
    assert record == {"lines": [{"item": "x", "count": 0}]}


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
