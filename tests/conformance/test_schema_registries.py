"""Our serializers and confluent-kafka's: the same bytes, the same requests, in both directions.

Each case runs with both clients, each on a new registry. Both choose subjects by topic: by default
confluent-kafka asks for associations first, which not every registry supports.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema as TheirSchema,
)
from confluent_kafka.schema_registry import (
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer as TheirProtobufDeserializer,
)
from confluent_kafka.schema_registry.protobuf import (
    ProtobufSerializer as TheirProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from raylog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    Schema,
    SchemaRegistry,
)
from tests.support.protos import message
from tests.support.registries import KINDS, Running, Start, starter
from tests.worlds.servers.registry import Call

TOPIC = "orders"

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "people",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": ["null", "int"], "default": None},
        ],
    }
)
LOGICAL = json.dumps(
    {
        "type": "record",
        "name": "Logical",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "tags", "type": {"type": "map", "values": "long"}},
        ],
    }
)
LOGICAL_VALUE = {
    "day": datetime.date(2026, 1, 31),
    "at": datetime.datetime(2026, 1, 31, 12, 30, 0, 125, tzinfo=datetime.UTC),
    "price": decimal.Decimal("-12.50"),
    "id": uuid.UUID("8c2a2e4c-5a05-4ca5-9d8b-6bd2a7a3c0c4"),
    "tags": {"b": 2, "a": -1},
}
TEAM = json.dumps(
    {
        "type": "record",
        "name": "Team",
        "namespace": "people",
        "fields": [
            {"name": "lead", "type": "people.User"},
            {"name": "members", "type": {"type": "array", "items": "people.User"}},
        ],
    }
)
TEAM_VALUE = {"lead": {"name": "Åsa", "age": 3}, "members": [{"name": "b", "age": None}]}
PERSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "home": {"$ref": "address.json"}},
        "required": ["name"],
    }
)
ADDRESS = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})
PLAIN = json.dumps({"title": "Plain", "type": "object", "properties": {"n": {"type": "number"}}})


@dataclass(frozen=True, slots=True)
class Case:
    """One format with its settings for both clients."""

    name: str
    value: Any
    ours: Callable[[SchemaRegistry], Any]
    theirs: Callable[[SchemaRegistryClient], Any]
    ours_reads: Callable[[SchemaRegistry], Any]
    theirs_read: Callable[[SchemaRegistryClient], Any]
    before: tuple[tuple[str, Schema], ...] = ()
    """What is registered first."""
    headers: bool = False
    is_key: bool = False


def conf(words: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"subject.name.strategy": topic_subject_name_strategy, **(words or {})}


def avro(
    name: str,
    value: Any,
    schema: str,
    *,
    references: tuple[Reference, ...] = (),
    words: dict[str, Any] | None = None,
    reading: dict[str, Any] | None = None,
    before: tuple[tuple[str, Schema], ...] = (),
    is_key: bool = False,
    **options: Any,
) -> Case:
    ours = Schema(schema, "AVRO", references) if references else schema
    theirs: Any = schema
    if references:
        named = [SchemaReference(one.name, one.subject, one.version) for one in references]
        theirs = TheirSchema(schema, "AVRO", named)
    reading_ours = {"subject_name_strategy": options.get("subject_name_strategy", "topic")}
    return Case(
        f"avro {name}",
        value,
        lambda registry: AvroSerializer(registry, ours, key=is_key, **options),
        lambda registry: TheirAvroSerializer(registry, theirs, conf=conf(words)),
        lambda registry: AvroDeserializer(registry, key=is_key, **reading_ours),
        lambda registry: TheirAvroDeserializer(registry, conf=conf(reading)),
        before,
        options.get("schema_id_place") == "header",
        is_key,
    )


def json_case(
    name: str,
    value: Any,
    schema: str,
    *,
    references: tuple[Reference, ...] = (),
    words: dict[str, Any] | None = None,
    before: tuple[tuple[str, Schema], ...] = (),
    **options: Any,
) -> Case:
    named = [SchemaReference(one.name, one.subject, one.version) for one in references]
    validate = options.get("validate", True)
    return Case(
        f"json {name}",
        value,
        lambda registry: JsonSchemaSerializer(
            registry, Schema(schema, "JSON", references), **options
        ),
        lambda registry: JSONSerializer(
            TheirSchema(schema, "JSON", named), registry, conf=conf(words)
        ),
        lambda registry: JsonSchemaDeserializer(registry, validate=validate),
        lambda registry: JSONDeserializer(None, None, registry, conf=conf({"validate": validate})),
        before,
    )


def protobuf(
    name: str,
    value: Any,
    *,
    words: dict[str, Any] | None = None,
    reading: dict[str, Any] | None = None,
    before: tuple[tuple[str, Schema], ...] = (),
    **options: Any,
) -> Case:
    kind = type(value)
    reading_ours = {"subject_name_strategy": options.get("subject_name_strategy", "topic")}
    return Case(
        f"protobuf {name}",
        value,
        lambda registry: ProtobufSerializer(registry, kind, **options),
        lambda registry: TheirProtobufSerializer(kind, registry, conf=conf(words)),
        lambda registry: ProtobufDeserializer(registry, kind, **reading_ours),
        lambda registry: TheirProtobufDeserializer(
            kind, conf=conf(reading), schema_registry_client=registry
        ),
        before,
        options.get("schema_id_place") == "header",
    )


HERE = (("orders-value", Schema(USER)),)
USERS = (("users", Schema(USER)),)
TO_USERS = (Reference("people.User", "users", 1),)
ADDRESSES = (("addresses", Schema(ADDRESS, "JSON")),)
TO_ADDRESSES = (Reference("address.json", "addresses", 1),)
USER_VALUE = {"name": "Åsa", "age": 41}
ORDER = message("shop.Order")(
    id="7", price={"units": 5, "currency": {"code": "SEK"}}, placed={"seconds": 9}, items={"a": 1}
)
BASKET = message("shop.Basket")(lines=[{"item": "x", "count": 2}])
AUTHOR = message("shop.Basket.Note.Author")(name="me")
CURRENCY = message("money.Currency")(code="EUR")

CASES = [
    avro("record", USER_VALUE, USER),
    avro("key", USER_VALUE, USER, is_key=True),
    avro("primitive", "text", '"string"'),
    avro("bytes", b"\0\1", '"bytes"'),
    avro("union", {"name": "b", "age": None}, f'["null", {USER}]'),
    avro("logical types", LOGICAL_VALUE, LOGICAL),
    avro("references", TEAM_VALUE, TEAM, references=TO_USERS, before=USERS),
    avro("normalized", USER_VALUE, USER, words={"normalize.schemas": True}, normalize_schemas=True),
    avro(
        "looked up",
        USER_VALUE,
        USER,
        words={"auto.register.schemas": False},
        before=HERE,
        auto_register_schemas=False,
    ),
    avro(
        "latest version",
        USER_VALUE,
        USER,
        words={"auto.register.schemas": False, "use.latest.version": True},
        before=HERE,
        auto_register_schemas=False,
        use_latest_version=True,
    ),
    avro(
        "schema id",
        USER_VALUE,
        USER,
        words={"auto.register.schemas": False, "use.schema.id": 1},
        before=HERE,
        auto_register_schemas=False,
        use_schema_id=1,
    ),
    avro(
        "by record",
        USER_VALUE,
        USER,
        words={"subject.name.strategy": record_subject_name_strategy},
        reading={"subject.name.strategy": record_subject_name_strategy},
        subject_name_strategy="record",
    ),
    avro(
        "by topic and record",
        USER_VALUE,
        USER,
        words={"subject.name.strategy": topic_record_subject_name_strategy},
        reading={"subject.name.strategy": topic_record_subject_name_strategy},
        subject_name_strategy="topic-record",
    ),
    avro(
        "id in a header",
        USER_VALUE,
        USER,
        words={
            "auto.register.schemas": False,
            "schema.id.serializer": header_schema_id_serializer,
        },
        before=HERE,
        auto_register_schemas=False,
        schema_id_place="header",
    ),
    json_case("object", {"n": 1.5, "text": 'Åsa "q" \u2028', "x": [None, True]}, PLAIN),
    json_case(
        "references",
        {"name": "a", "home": {"city": "Lund"}},
        PERSON,
        references=TO_ADDRESSES,
        before=ADDRESSES,
    ),
    json_case("not validated", {"n": "x"}, PLAIN, words={"validate": False}, validate=False),
    json_case(
        "latest version",
        {"n": 1},
        PLAIN,
        words={"auto.register.schemas": False, "use.latest.version": True},
        before=(("orders-value", Schema(PLAIN, "JSON")),),
        auto_register_schemas=False,
        use_latest_version=True,
    ),
    protobuf("first message", CURRENCY),
    protobuf("references and known types", ORDER),
    protobuf("second message", BASKET),
    protobuf("nested message", AUTHOR),
    protobuf("normalized", ORDER, words={"normalize.schemas": True}, normalize_schemas=True),
    protobuf(
        "by record",
        CURRENCY,
        words={"subject.name.strategy": record_subject_name_strategy},
        reading={"subject.name.strategy": record_subject_name_strategy},
        subject_name_strategy="record",
    ),
]


@pytest.fixture(params=KINDS)
def start(request: pytest.FixtureRequest) -> Start:
    return starter(request.param)


@dataclass(slots=True)
class Written:
    """A serializer's bytes, and the requests that it sent."""

    data: bytes
    headers: list[tuple[str, bytes]]
    calls: list[Call]
    registry: Running


def prepared(case: Case, registry: Running) -> int:
    """Register what must be there; how many requests that took."""
    with SchemaRegistry(registry.url) as client:
        for subject, schema in case.before:
            client.register(subject, schema)
    return len(registry.calls)


def write_ours(case: Case, registry: Running) -> Written:
    first = prepared(case, registry)
    headers: list[tuple[str, bytes]] = []
    with SchemaRegistry(registry.url) as client:
        serialize = case.ours(client)
        data = serialize(TOPIC, case.value, headers)
        assert serialize(TOPIC, case.value, []) == data
    return Written(data, headers, registry.calls[first:], registry)


def context(case: Case, headers: list[tuple[str, bytes]]) -> SerializationContext:
    given: Any = headers
    return SerializationContext(
        TOPIC, MessageField.KEY if case.is_key else MessageField.VALUE, given
    )


def write_theirs(case: Case, registry: Running) -> Written:
    first = prepared(case, registry)
    headers: list[tuple[str, bytes]] = []
    with SchemaRegistryClient({"url": registry.url}) as client:
        data = case.theirs(client)(case.value, context(case, headers))
    return Written(data, headers, registry.calls[first:], registry)


def read_ours(case: Case, written: Written) -> tuple[Any, list[Call]]:
    first = len(written.registry.calls)
    with SchemaRegistry(written.registry.url) as client:
        value = case.ours_reads(client)(TOPIC, written.data, written.headers)
    return value, written.registry.calls[first:]


def read_theirs(case: Case, written: Written) -> tuple[Any, list[Call]]:
    first = len(written.registry.calls)
    with SchemaRegistryClient({"url": written.registry.url}) as client:
        value = case.theirs_read(client)(written.data, context(case, written.headers))
    return value, written.registry.calls[first:]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_and_requests_are_those_of_confluent_kafka_both_ways(
    case: Case, start: Start
) -> None:
    with start() as one, start() as other:
        ours, theirs = write_ours(case, one), write_theirs(case, other)
        assert ours.data == theirs.data
        assert ours.headers == theirs.headers
        assert ours.calls == theirs.calls
        assert bool(ours.headers) == case.headers

        value, asked = read_ours(case, theirs)
        assert value == case.value
        their_value, they_asked = read_theirs(case, ours)
        assert their_value == case.value
        assert asked == they_asked
