"""Our bytes against kio, an independent implementation generated from Kafka's own definitions."""

import io
import uuid
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from raylog.wire.api import ApiKey
from raylog.wire.codec import decode, encode
from raylog.wire.error_codes import ErrorCode
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.schema import Array, is_struct, layout_of
from tests.support.messages import (
    ALL_CASES,
    API_CASES,
    BOUNDED,
    Case,
    Messages,
    params,
    written_form,
)

MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BLOB_NAMES = {
    ConsumerProtocolSubscription: "consumer_protocol_subscription",
    ConsumerProtocolAssignment: "consumer_protocol_assignment",
}
CASES = API_CASES + [case for case in ALL_CASES if case.cls in BLOB_NAMES]
# kio turns these into datetime, timedelta and its own enum, which hold less than the wire does.
OVERRIDES: dict[str, st.SearchStrategy[Any]] = {
    "log_append_time_ms": st.integers(-1, 2**41),
    "transaction_start_time_ms": st.integers(-1, 2**41),
    "session_lifetime_ms": st.integers(0, 2**41),
    "retention_time_ms": st.integers(-1, 2**41),
    **dict.fromkeys(
        (
            "issue_timestamp_ms",
            "expiry_timestamp_ms",
            "max_timestamp_ms",
            "max_lifetime_ms",
            "renew_period_ms",
            "expiry_time_period_ms",
        ),
        st.integers(0, 2**41),
    ),
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "partition_error_code": st.sampled_from([int(code) for code in ErrorCode]),
}


@cache
def kio_messages(case: Case) -> st.SearchStrategy[Any]:
    return Messages(case.version, OVERRIDES).of(case.cls)


def kio_class(case: Case) -> Any:
    if case.api_key is None:
        return load_entity_schema(BLOB_NAMES[case.cls], case.version, EntityType.data)
    if case.cls.__name__.endswith("Request"):
        return load_request_schema(case.api_key, case.version)
    return load_response_schema(case.api_key, case.version)


def kio_plain(value: Any, kafka_type: str | None = None) -> Any:
    """kio's value as plain data."""
    match value:
        case None if kafka_type == "uuid":
            return bytes(16)
        case None if kafka_type == "datetime_i64":
            return -1
        case uuid.UUID():
            return value.bytes
        case timedelta():
            return value // MILLISECOND
        case datetime():
            return (value - EPOCH) // MILLISECOND
        case KioErrorCode():
            return value.value
        case tuple():
            return [kio_plain(item, kafka_type) for item in value]
    if is_dataclass(value):
        return {
            plain_name(field.name): kio_plain(
                getattr(value, field.name), field.metadata.get("kafka_type")
            )
            for field in fields(value)
        }
    return value


def our_plain(message: Any, version: int) -> Any:
    """Our message as plain data. An absent tagged struct is an all-default one, as in kio."""
    plain = {}
    for field in layout_of(type(message)).fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        kind: Any = field.kind
        if is_struct(kind) and (value is not None or version not in field.nullable):
            value = our_plain(value or kind(), version)
        elif isinstance(kind, Array) and is_struct(kind.element) and value is not None:
            value = [our_plain(item, version) for item in value]
        plain[plain_name(field.name)] = value
    return plain


def plain_name(name: str) -> str:
    """A name without differences in the position of units and in separated digits."""
    return name.removesuffix("_ms").replace("_", "")


@pytest.mark.parametrize("case", params(CASES))
@BOUNDED
@given(data=st.data())
def test_same_bytes_and_fields(case: Case, data: st.DataObject) -> None:
    message = written_form(data.draw(kio_messages(case)))
    encoded = encode(message, case.version)

    theirs_class = kio_class(case)
    theirs, size = entity_reader(theirs_class)(encoded, 0)
    assert size == len(encoded)
    plain = kio_plain(theirs)
    assert list(plain) == [plain_name(name) for name in names_at(case)]
    assert plain == our_plain(message, case.version)

    buffer = io.BytesIO()
    entity_writer(theirs_class)(buffer, theirs)
    assert buffer.getvalue() == encoded
    assert decode(case.cls, case.version, buffer.getvalue()) == message


def names_at(case: Case) -> list[str]:
    return [f.name for f in layout_of(case.cls).fields if case.version in f.versions]


def test_kio_knows_every_version() -> None:
    """Were kio to lack some, the comparison above would say less than it seems to."""
    for key in ApiKey:
        ours = {case.version for case in API_CASES if case.api_key is key}
        assert ours <= set(schema_name_map[api_key_map[key]]), key


def test_error_codes_are_those_of_kio() -> None:
    ours = {code.name.lower(): int(code) for code in ErrorCode}
    assert ours == {code.name: code.value for code in KioErrorCode}


def test_retriable_is_as_in_kio() -> None:
    differing = {code.name for code in ErrorCode if code.retriable != KioErrorCode(code).retriable}
    assert not differing
