"""Serializers and deserializers: schemas, subjects, the wire format, and mismatches."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from raylog.client.errors import InvalidSetting
from raylog.client.schemas import (
    AsyncSchemaRegistry,
    AvroDeserializer,
    AvroSerializer,
    DecodingFailed,
    EncodingFailed,
    InvalidSchema,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    Schema,
    SchemaError,
    SchemaNotFound,
    SchemaRegistry,
)
from raylog.client.schemas.framing import VALUE_HEADER, encode_indexes, guid_header, id_prefix
from tests.support.protos import message
from tests.worlds.decorators import in_loop
from tests.worlds.servers import registry as fake_registry
from tests.worlds.servers.registry import FakeRegistry, Reply

USER = json.dumps(
    {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
)
USER_2 = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "full_name", "aliases": ["name"], "type": "string"},
            {"name": "age", "type": "long", "default": 7},
        ],
    }
)
LIST = json.dumps(
    {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
)
PERSON = '{"title":"Person","type":"object","properties":{"n":{"type":"number"}}}'


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry.running() as registry:
        yield registry


@pytest.fixture
def registry(fake: FakeRegistry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(fake.url, max_retries=0, missing_id_ttl_sec=0) as client:
        yield client


def test_each_topic_has_its_subject_and_asks_once(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    serialize = AvroSerializer(registry, USER)
    for topic in ("a", "b", "a", "b"):
        serialize(topic, {"name": "x"})
    assert registry.subjects() == ["a-value", "b-value"]
    assert len(fake.calls) == 3


def test_a_reader_schema_resolves_what_was_written(registry: SchemaRegistry) -> None:
    data = AvroSerializer(registry, USER)("t", {"name": "Åsa"})
    assert AvroDeserializer(registry)("t", data) == {"name": "Åsa"}
    assert AvroDeserializer(registry, USER_2)("t", data) == {"full_name": "Åsa", "age": 7}
    registry.register("t-value", Schema(USER_2))
    latest = AvroDeserializer(registry, use_latest_version=True)
    assert latest("t", data) == {"full_name": "Åsa", "age": 7}


def test_objects_of_ones_own(registry: SchemaRegistry) -> None:
    serialize: AvroSerializer[str] = AvroSerializer(
        registry, USER, to_dict=lambda name: {"name": name}
    )
    deserialize = AvroDeserializer(registry, from_dict=lambda found: str(found["name"]))
    assert deserialize("t", serialize("t", "x")) == "x"
    to_json: JsonSchemaSerializer[int] = JsonSchemaSerializer(
        registry, PERSON, to_dict=lambda number: {"n": number}
    )
    from_json = JsonSchemaDeserializer(registry, from_dict=lambda found: float(found["n"]))
    assert from_json("j", to_json("j", 2)) == 2.0


def test_ids_in_headers(registry: SchemaRegistry) -> None:
    serialize = AvroSerializer(registry, USER, schema_id_place="header")
    headers: list[tuple[str, bytes | None]] = [("own", b"1")]
    data = serialize("t", {"name": "x"}, headers)
    guid = registry.latest("t-value").guid
    assert guid is not None
    assert headers == [("own", b"1"), (VALUE_HEADER, guid_header(guid))]
    assert data == b"\x02x"
    assert AvroDeserializer(registry)("t", data, headers) == {"name": "x"}
    with pytest.raises(EncodingFailed, match=r"expected headers as a list.*found tuple"):
        serialize("t", {"name": "x"}, ())


@in_loop
async def test_on_an_event_loop(fake: FakeRegistry) -> None:
    async with AsyncSchemaRegistry(fake.url) as registry:
        serialize = AvroSerializer(registry, USER)
        deserialize = AvroDeserializer(registry)
        with pytest.raises(SchemaError, match=r"expected `await serializer\.encode"):
            serialize("t", {"name": "x"})
        data = await serialize.encode("t", {"name": "x"})
        assert serialize("t", {"name": "x"}) == data
        with pytest.raises(SchemaError, match=r"expected `await deserializer\.decode"):
            deserialize("t", data)
        assert await deserialize.decode("t", data) == {"name": "x"}
        assert deserialize("t", data) == {"name": "x"}
        await serialize.prepare("other")
        assert serialize("other", {"name": "x"}) == data


def test_threads_share_a_serializer_and_one_asks(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    serialize = AvroSerializer(registry, USER)
    made: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: made.append(serialize("t", {"name": "x"})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [id_prefix(1) + b"\x02x"] * 8
    assert len(fake.calls) == 1


def test_an_id_is_read_by_whatever_subject_it_was_written_under(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    data = AvroSerializer(registry, USER)("t", {"name": "x"})
    assert AvroDeserializer(registry)("copied", data) == {"name": "x"}
    assert [dict(call.query).get("subject") for call in fake.calls[1:]] == ["copied-value", None]
    by_record = AvroSerializer(registry, USER, subject_name_strategy="record")
    assert AvroDeserializer(registry)("t2", by_record("t2", {"name": "y"})) == {"name": "y"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "found nothing of 0 bytes"),
        (b"\0", "found 00 of 1 bytes"),
        (b"\0\0\0\1", "found 00 00 00 01 of 4 bytes"),
        (b"{plain json}", r"found 7b 70 6c 61 69 6e 20 6a\.\.\. of 12 bytes"),
        (b"\2\0\0\0\1\2x", "expected the wire format"),
        (b"\0\xff\xff\xff\xffx", "schema id of at most 2147483647, found 4294967295"),
        (b"\1" + bytes(15), "expected the wire format"),
    ],
)
def test_bytes_of_no_serializer(registry: SchemaRegistry, data: bytes, said: str) -> None:
    for deserialize in (
        AvroDeserializer(registry),
        JsonSchemaDeserializer(registry),
        ProtobufDeserializer(registry),
    ):
        with pytest.raises(DecodingFailed, match=said):
            deserialize("t", data)


def test_headers_that_are_wrong(registry: SchemaRegistry) -> None:
    deserialize = AvroDeserializer(registry)
    for value, said in (
        (b"", "in the header __value_schema_id"),
        (b"\1" + bytes(17), "expected 17 bytes in the header __value_schema_id, found 18"),
        (b"\2" + bytes(16), "in the header __value_schema_id"),
    ):
        with pytest.raises(DecodingFailed, match=said):
            deserialize("t", b"x", [(VALUE_HEADER, value)])
    with pytest.raises(SchemaNotFound):
        deserialize("t", b"x", [(VALUE_HEADER, b"\1" + bytes(16))])


def test_an_unknown_id(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaNotFound, match="code 40403"):
        AvroDeserializer(registry)("t", id_prefix(7) + b"x")


@pytest.mark.parametrize("rest", [b"", b"\x02", b"\x02xy", b"\x01", b"\xff" * 12, b"\x02\xff"])
def test_avro_that_is_cut_or_has_more(registry: SchemaRegistry, rest: bytes) -> None:
    registry.register("t-value", Schema(USER))
    with pytest.raises(DecodingFailed, match=r"expected .*Avro schema User"):
        AvroDeserializer(registry)("t", id_prefix(1) + rest)


def test_avro_that_is_nested_deeper_than_a_stack(registry: SchemaRegistry) -> None:
    registry.register("t-value", Schema(LIST))
    deserialize = AvroDeserializer(registry)
    assert deserialize("t", id_prefix(1) + b"\x02" * 100 + b"\0")["next"] is not None
    with pytest.raises(DecodingFailed, match="nested at most 150 deep"):
        deserialize("t", id_prefix(1) + b"\x02" * 1_000_000 + b"\0")


@pytest.mark.parametrize(
    "items",
    ['"null"', '{"type":"fixed","name":"F","size":0}', '{"type":"record","name":"R","fields":[]}'],
)
def test_an_array_that_claims_items_without_bytes(registry: SchemaRegistry, items: str) -> None:
    registry.register("t-value", Schema(f'{{"type":"array","items":{items}}}'))
    deserialize = AvroDeserializer(registry)
    assert len(deserialize("t", id_prefix(1) + b"\x06\0")) == 3
    with pytest.raises(DecodingFailed, match="items"):
        deserialize("t", id_prefix(1) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0")


def test_values_that_do_not_fit_their_schema(registry: SchemaRegistry) -> None:
    for value in ({"name": 5}, {}, "x", None, {"name": "x" * 3, "_": object()}):
        if value == {"name": "xxx"} or (isinstance(value, dict) and "_" in value):
            strict = AvroSerializer(registry, USER, strict=True)
            with pytest.raises(EncodingFailed):
                strict("t", value)
            continue
        with pytest.raises(EncodingFailed, match="does not fit its Avro schema User"):
            AvroSerializer(registry, USER)("t", value)
    with pytest.raises(EncodingFailed, match=r"\$\.n: 'x' is not of type 'number'"):
        JsonSchemaSerializer(registry, PERSON)("j", {"n": "x"})
    with pytest.raises(EncodingFailed, match="JSON serializable"):
        JsonSchemaSerializer(registry, "{}")("k", {"n": object()})
    with pytest.raises(EncodingFailed, match=r"expected a message money\.Currency, found Order"):
        ProtobufSerializer(registry, message("money.Currency"))("p", message("shop.Order")())


def test_json_is_validated_unless_told_otherwise(registry: SchemaRegistry) -> None:
    careless = JsonSchemaSerializer(registry, PERSON, validate=False)
    data = careless("t", {"n": "x"})
    with pytest.raises(DecodingFailed, match=r"schema 1, found: \$\.n"):
        JsonSchemaDeserializer(registry)("t", data)
    assert JsonSchemaDeserializer(registry, validate=False)("t", data) == {"n": "x"}
    stricter = JsonSchemaDeserializer(registry, '{"required":["m"]}')
    with pytest.raises(DecodingFailed, match="'m' is a required property"):
        stricter("t", careless("t", {"n": 1}))


@pytest.mark.parametrize("rest", [b"", b"{", b'{"n":1} x', b"\xff", b"[" * 100_000, b"NaN]"])
def test_invalid_json_is_refused(registry: SchemaRegistry, rest: bytes) -> None:
    registry.register("t-value", Schema(PERSON, "JSON"))
    with pytest.raises(DecodingFailed, match="expected JSON of the schema 1"):
        JsonSchemaDeserializer(registry)("t", id_prefix(1) + rest)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "expected a JSON Schema, found '{'"),
        ('{"type":5}', "expected a JSON Schema"),
    ],
)
def test_invalid_json_schema_is_refused(registry: SchemaRegistry, schema: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        JsonSchemaSerializer(registry, schema)("t", {})


def test_json_references_are_never_fetched(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    for target in (f"{fake.url}/subjects", "file:///etc/passwd", "other.json"):
        schema = json.dumps({"$ref": target})
        asked = len(fake.calls)
        with pytest.raises(EncodingFailed, match="refers to what no reference brings"):
            JsonSchemaSerializer(registry, schema)("t", {})
        assert not [call for call in fake.calls[asked:] if call.method == "GET"]


def test_json_that_refers_to_itself_forever(registry: SchemaRegistry) -> None:
    with pytest.raises(EncodingFailed):
        JsonSchemaSerializer(registry, '{"$ref":"#"}')("t", {})


@pytest.mark.parametrize("schema", ["{", '"none.such"', '{"type":"record"}', "[[]]", "5"])
def test_invalid_avro_schema_is_refused(registry: SchemaRegistry, schema: str) -> None:
    with pytest.raises(SchemaError):
        AvroSerializer(registry, schema)("t", {})


def test_references_in_a_circle(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    def circular(call: fake_registry.Call) -> Reply | None:
        if "/versions/" not in call.path:
            return None
        body = {"schema": '"int"', "references": [{"name": "B", "subject": "b", "version": 1}]}
        return Reply.of({"id": 1, "version": 1, **body})

    fake.trouble = circular
    schema = Schema('{"type":"B"}', "AVRO", (Reference("B", "b", 1),))
    with pytest.raises(InvalidSchema, match="without a circle, found B -> B"):
        AvroSerializer(registry, schema)("t", {})


def test_references_without_end(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    names = itertools.count()

    def endless(call: fake_registry.Call) -> Reply | None:
        if "/versions/" not in call.path:
            return None
        deeper = {"name": f"n{next(names)}", "subject": f"s{next(names)}", "version": 1}
        return Reply.of({"id": 1, "schema": "{}", "schemaType": "JSON", "references": [deeper]})

    fake.trouble = endless
    schema = Schema("{}", "JSON", (Reference("a", "a", 1),))
    with pytest.raises(InvalidSchema, match="100 deep, found more"):
        JsonSchemaSerializer(registry, schema)("t", {})


def test_a_schema_of_another_format(registry: SchemaRegistry) -> None:
    registry.register("t-value", Schema(PERSON, "JSON"))
    with pytest.raises(DecodingFailed, match="of the type AVRO, found JSON"):
        AvroDeserializer(registry)("t", id_prefix(1) + b"x")
    latest = AvroSerializer(registry, auto_register_schemas=False, use_latest_version=True)
    with pytest.raises(SchemaError, match="of the type AVRO in t-value, found JSON"):
        latest("t", {})


def test_a_message_is_looked_up_in_the_schema_that_it_is_written_with(
    registry: SchemaRegistry,
) -> None:
    """The registry's file may have its messages in another order."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    for name in ("Refund", "Payment"):
        file.message_type.add(name=name).field.add(name=name.lower(), number=1, type=3, label=1)
    text = base64.b64encode(file.SerializeToString()).decode()
    registered = registry.register("t-value", Schema(text, "PROTOBUF"))
    file.message_type.insert(0, file.message_type.pop())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    payment: Any = GetMessageClass(pool.FindMessageTypeByName("p.Payment"))
    read: ProtobufDeserializer[Any] = ProtobufDeserializer(registry)
    for choice in ({"use_latest_version": True}, {"use_schema_id": registered.id}):
        write = ProtobufSerializer(registry, payment, auto_register_schemas=False, **choice)
        back = read("t", write("t", payment(payment=100)))
        assert (back.DESCRIPTOR.full_name, back.payment) == ("p.Payment", 100)
    del file.message_type[:]
    file.message_type.add(name="Refund")
    other = Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    registry.register("other-value", other)
    latest = ProtobufSerializer(
        registry, payment, auto_register_schemas=False, use_latest_version=True
    )
    with pytest.raises(SchemaError, match=r"a message of Refund, found 'p\.Payment'"):
        latest("other", payment())


def test_json_has_no_nan(registry: SchemaRegistry) -> None:
    serialize = JsonSchemaSerializer(registry, '{"type": "object"}')
    with pytest.raises(EncodingFailed, match="not JSON compliant"):
        serialize("t", {"x": float("nan")})


def test_a_record_of_another_name_is_refused(registry: SchemaRegistry) -> None:
    data = AvroSerializer(registry, USER)("t", {"name": "a"})
    other = {"type": "record", "name": "Other", "fields": [{"name": "name", "type": "string"}]}
    with pytest.raises(DecodingFailed, match="expected a value of the Avro schema"):
        AvroDeserializer(registry, json.dumps(other))("t", data)


ZIGZAG_2_31 = b"\x80\x80\x80\x80\x10"


@pytest.mark.parametrize(
    ("indexes", "said"),
    [
        (b"", "expected message indexes as varints of 32 bits at byte 5, found the end"),
        (b"\x02\x0a", r"expected message indexes of the schema's file \(2 messages.*found \[5\]"),
        (b"\x02\x01", "expected message indexes of 0 or more, found -1"),
        (b"\x01", "expected 0 to 100 message indexes, found -1"),
        (ZIGZAG_2_31, "expected message indexes as varints"),
        (b"\xfe\xff\xff\xff\x0f\x00", "expected 0 to 100 message indexes, found 2147483647"),
        (b"\xff" * 9, "expected message indexes as varints"),
        (b"\x04\x02", "at byte 7, found the end"),
        (b"\x06\x02\x02\x04", r"found \[1, 1, 2\]"),
        (b"\x02" + b"\xfe\xff\xff\xff\x0f", r"found \[2147483647\]"),
    ],
)
def test_message_indexes_that_are_wrong(
    registry: SchemaRegistry, indexes: bytes, said: str
) -> None:
    serialize = ProtobufSerializer(registry, message("shop.Basket"))
    data = serialize("t", message("shop.Basket")())
    for kind in (None, message("shop.Basket")):
        with pytest.raises(DecodingFailed, match=said):
            ProtobufDeserializer(registry, kind)("t", data[:5] + indexes)


def test_messages_are_made_of_what_was_written(registry: SchemaRegistry) -> None:
    order = message("shop.Order")(id="7", price={"units": 5}, placed={"seconds": 3})
    author = message("shop.Basket.Note.Author")(name="me")
    deserialize = ProtobufDeserializer(registry)
    for value in (order, author):
        data = ProtobufSerializer(registry, type(value))("t", value)
        found = deserialize("t", data)
        assert found.DESCRIPTOR.full_name == value.DESCRIPTOR.full_name
        assert found.SerializeToString() == value.SerializeToString()


def test_a_message_of_another_class_is_refused(registry: SchemaRegistry) -> None:
    data = ProtobufSerializer(registry, message("shop.Basket"))("t", message("shop.Basket")())
    with pytest.raises(DecodingFailed, match=r"a message shop\.Order, found shop\.Basket"):
        ProtobufDeserializer(registry, message("shop.Order"))("t", data)


def test_a_message_that_is_cut(registry: SchemaRegistry) -> None:
    data = ProtobufSerializer(registry, message("money.Currency"))(
        "t", message("money.Currency")(code="SEK")
    )
    with pytest.raises(DecodingFailed, match=r"expected a message money\.Currency \(schema 1\)"):
        ProtobufDeserializer(registry, message("money.Currency"))("t", data[:-1])


PROTO = """
syntax = "proto3";
package shop;
import "money.proto";
message Sale { money.Money price = 1; }
"""
MONEY = 'syntax = "proto3"; package money; message Money { int64 units = 1; }'


def test_textual_protobuf_schema_can_be_decoded(registry: SchemaRegistry) -> None:
    pytest.importorskip("grpc_tools")
    registry.register("money.proto", Schema(MONEY, "PROTOBUF"))
    registry.register(
        "t-value", Schema(PROTO, "PROTOBUF", (Reference("money.proto", "money.proto", 1),))
    )
    found = ProtobufDeserializer(registry)("t", id_prefix(2, [0]) + b"\x0a\x02\x08\x05")
    assert found.price.units == 5


DATED = """
syntax = "proto3";
import "google/type/date.proto";
import public 'google/protobuf/timestamp.proto';
message Dated { google.type.Date day = 1; google.protobuf.Timestamp at = 2; }
"""


def test_known_types_need_no_reference(registry: SchemaRegistry) -> None:
    pytest.importorskip("grpc_tools")
    pytest.importorskip("google.type.date_pb2")
    registry.register("t-value", Schema(DATED, "PROTOBUF"))
    data = id_prefix(1, [0]) + b"\x0a\x03\x08\xea\x0f\x12\x02\x08\x07"
    found = ProtobufDeserializer(registry)("t", data)
    assert (found.day.year, found.at.seconds) == (2026, 7)


def test_an_import_that_nothing_brings_is_named(registry: SchemaRegistry) -> None:
    pytest.importorskip("grpc_tools")
    text = 'syntax = "proto3"; import "confluent/none.proto"; message M {}'
    registry.register("t-value", Schema(text, "PROTOBUF"))
    with pytest.raises(SchemaError, match=r"a reference that brings confluent/none\.proto"):
        ProtobufDeserializer(registry)("t", id_prefix(1, [0]))


@pytest.mark.parametrize("name", ["../../x.proto", "/etc/x.proto", "@x", "-o/x"])
def test_paths_of_references_stay_in_their_folder(registry: SchemaRegistry, name: str) -> None:
    pytest.importorskip("grpc_tools")
    registry.register("money", Schema(MONEY, "PROTOBUF"))
    registry.register("t-value", Schema(PROTO, "PROTOBUF", (Reference(name, "money", 1),)))
    with pytest.raises(SchemaError, match="expected an import path"):
        ProtobufDeserializer(registry)("t", id_prefix(2, [0]))


@pytest.mark.parametrize("text", ["", "AAAA", "not a schema", "\0", "CgA="])
def test_invalid_protobuf_schema_is_refused(
    fake: FakeRegistry, registry: SchemaRegistry, text: str
) -> None:
    fake.trouble = lambda call: Reply.of({"schema": text, "schemaType": "PROTOBUF"})
    with pytest.raises(SchemaError):
        ProtobufDeserializer(registry)("t", id_prefix(1, [0]))


def test_indexes_have_a_short_form() -> None:
    assert encode_indexes([0]) == b"\0"
    assert encode_indexes([1]) == b"\x02\x02"
    assert encode_indexes([0, 0]) == b"\x04\x00\x00"
    assert encode_indexes([1, 130]) == b"\x04\x02\x84\x02"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"use_latest_version": True}, "auto_register_schemas=False with use_latest_version"),
        ({"use_schema_id": 1}, "auto_register_schemas=False with use_schema_id"),
        (
            {"auto_register_schemas": False, "use_latest_version": True, "use_schema_id": 1},
            "found both",
        ),
        ({"schema_id_place": "footer"}, "'prefix' or 'header', found 'footer'"),
        ({"subject_name_strategy": "value"}, "of topic, record, topic-record, found 'value'"),
    ],
)
def test_contradicting_options_are_refused(
    registry: SchemaRegistry, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said):
        AvroSerializer(registry, USER, **options)


def test_a_strategy_that_needs_a_name_says_so(registry: SchemaRegistry) -> None:
    serialize = AvroSerializer(registry, f'["null",{USER}]', subject_name_strategy="record")
    with pytest.raises(SchemaError, match="expected a schema with a name"):
        serialize("t", None)


def test_a_strategy_of_ones_own(registry: SchemaRegistry) -> None:
    serialize = AvroSerializer(
        registry,
        USER,
        key=True,
        subject_name_strategy=lambda topic, is_key, name: f"{topic}.{is_key}.{name}",
    )
    serialize("t", {"name": "x"})
    assert registry.subjects() == ["t.True.User"]


def test_a_serializer_needs_a_schema_to_register(registry: SchemaRegistry) -> None:
    for kind in (AvroSerializer, JsonSchemaSerializer):
        with pytest.raises(SchemaError, match="expected a schema to register"):
            kind(registry)
        with pytest.raises(SchemaError, match="expected a schema to look up"):
            kind(registry, auto_register_schemas=False)("t", {})
