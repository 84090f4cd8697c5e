"""Deserializers return a value or raise SchemaError for any bytes, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaError,
    SchemaRegistry,
)
from raylog.client.schemas.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    decode_indexes,
    encode_indexes,
    guid_header,
    id_prefix,
    read_frame,
)
from tests.support.protos import message
from tests.worlds.servers import registry as fake_registry

AVRO = [
    '"bytes"',
    '["null","long","string"]',
    '{"type":"record","name":"Node","fields":[{"name":"n","type":["null","Node"]}]}',
    '{"type":"record","name":"Tree","fields":[{"name":"t","type":{"type":"array","items":"Tree"}}]}',
    '{"type":"record","name":"Map","fields":[{"name":"m","type":{"type":"map","values":"Map"}}]}',
    '{"type":"array","items":"null"}',
    '{"type":"array","items":{"type":"record","name":"E","fields":[]}}',
    '{"type":"map","values":{"type":"array","items":"boolean"}}',
    json.dumps(
        {
            "type": "record",
            "name": "Many",
            "fields": [
                {"name": "a", "type": {"type": "fixed", "name": "F", "size": 3}},
                {"name": "b", "type": {"type": "enum", "name": "N", "symbols": ["X", "Y"]}},
                {"name": "c", "type": {"type": "int", "logicalType": "date"}},
                {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "e", "type": {"type": "int", "logicalType": "time-millis"}},
                {
                    "name": "f",
                    "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
                },
                {"name": "g", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "h", "type": ["null", "double", "F"]},
            ],
        }
    ),
]
JSON = '{"type":"object","properties":{"a":{"$ref":"#"}},"additionalProperties":{"type":"number"}}'

Read = Callable[[bytes], object]


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with fake_registry.running() as fake, SchemaRegistry(fake.url) as client:
        yield client


@pytest.fixture(scope="module")
def reads(registry: SchemaRegistry) -> list[tuple[int, Read]]:
    """Each schema's id, and the function that reads its values."""
    found: list[tuple[int, Read]] = []
    for number, text in enumerate(AVRO):
        schema = Schema(text if text[0] in "{[" else f'{{"type":{text}}}')
        topic = f"avro{number}"
        registered = registry.register(f"{topic}-value", schema)
        found.append((registered.id, _reader(AvroDeserializer(registry), topic)))
    registered = registry.register("json-value", Schema(JSON, "JSON"))
    found.append((registered.id, _reader(JsonSchemaDeserializer(registry), "json")))
    for name in ("shop.Order", "shop.Basket"):
        data = ProtobufSerializer(registry, message(name))("proto", message(name)())
        of_class = ProtobufDeserializer(registry, message(name))
        found += [
            (int.from_bytes(data[1:5]), _reader(deserialize, "proto"))
            for deserialize in (of_class, ProtobufDeserializer(registry))
        ]
    return found


def _reader(deserialize: Any, topic: str) -> Read:
    return lambda data: deserialize(topic, data, ())


def said_of(read: Read, data: bytes) -> str:
    """A description of the result. Anything but a value and a SchemaError is raised."""
    try:
        return f"read {type(read(data)).__name__}"
    except SchemaError as failure:
        return str(failure)


varints = st.integers(-(2**63), 2**63 - 1).map(lambda number: encode_indexes([number, 0])[1:-1])
pieces = st.one_of(
    st.binary(max_size=20),
    varints,
    st.sampled_from([b"\0", b"\2", b"\1", b"\x80", b"\xff", b"{", b'{"a":', b"[", b"1", b"}"]),
)
repeated = st.tuples(pieces, st.integers(1, 3_000)).map(lambda pair: pair[0] * pair[1])
bodies = st.lists(st.one_of(pieces, repeated), max_size=6).map(b"".join)


@given(data=st.data(), body=bodies)
def test_any_bytes_are_a_value_or_a_schema_error(
    reads: list[tuple[int, Read]], data: st.DataObject, body: bytes
) -> None:
    schema_id, read = data.draw(st.sampled_from(reads))
    assert said_of(read, id_prefix(schema_id) + body)


@given(data=st.data(), body=st.binary(max_size=40))
def test_any_frame_is_one_or_a_schema_error(
    reads: list[tuple[int, Read]], data: st.DataObject, body: bytes
) -> None:
    _, read = data.draw(st.sampled_from(reads))
    assert said_of(read, body)


@given(indexes=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=100), rest=st.binary())
def test_message_indexes_there_and_back(indexes: list[int], rest: bytes) -> None:
    data = encode_indexes(indexes)
    assert decode_indexes(b"xx" + data + rest, 2) == (tuple(indexes), 2 + len(data))


@given(
    schema_id=st.integers(0, 2**31 - 1),
    indexes=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=3),
    guid=st.uuids(),
    rest=st.binary(),
    is_key=st.booleans(),
)
def test_frames_there_and_back(
    schema_id: int, indexes: list[int] | None, guid: object, rest: bytes, is_key: bool
) -> None:
    placed = None if indexes is None else tuple(indexes)
    prefix = id_prefix(schema_id, indexes)
    frame = read_frame(prefix + rest, (), is_key=is_key, indexed=indexes is not None)
    assert (frame.id, frame.guid, frame.indexes) == (schema_id, None, placed)
    assert frame.start == len(prefix)
    headers = [
        (VALUE_HEADER if is_key else KEY_HEADER, b"the other's"),
        (KEY_HEADER if is_key else VALUE_HEADER, guid_header(str(guid), indexes)),
    ]
    frame = read_frame(rest, headers, is_key=is_key, indexed=indexes is not None)
    assert (frame.id, frame.guid, frame.indexes, frame.start) == (None, str(guid), placed, 0)


numbers = st.integers(-(2**63), 2**63 - 1)
FIELDS: list[tuple[object, st.SearchStrategy[Any]]] = [
    ("long", numbers),
    ("string", st.text(st.characters(exclude_categories=["Cs"]))),
    ("bytes", st.binary()),
    ("boolean", st.booleans()),
    ("double", st.floats(allow_nan=False)),
    (["null", "long"], st.none() | numbers),
    ({"type": "array", "items": "long"}, st.lists(numbers)),
    ({"type": "map", "values": "bytes"}, st.dictionaries(st.text("abc"), st.binary())),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
]


@given(data=st.data(), chosen=st.lists(st.sampled_from(FIELDS), min_size=1, max_size=5))
def test_avro_values_there_and_back(
    registry: SchemaRegistry, data: st.DataObject, chosen: list[tuple[object, Any]]
) -> None:
    fields = [{"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(chosen)]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    value = {f"f{number}": data.draw(values) for number, (_, values) in enumerate(chosen)}
    written = AvroSerializer(registry, schema, strict=True)("round", value)
    assert AvroDeserializer(registry)("round", written) == value


jsons = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
)


@given(value=jsons)
def test_json_values_there_and_back(registry: SchemaRegistry, value: object) -> None:
    written = JsonSchemaSerializer(registry, "{}")("any", value)
    assert JsonSchemaDeserializer(registry)("any", written) == value
