"""Metrics that clients push, from the request to the scrape."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.gateway.telemetry import otlp, received
from raylog.actors.gateway.telemetry.instance import TELEMETRY_BYTES_MAX
from raylog.actors.gateway.telemetry.otlp import Point, points
from raylog.actors.gateway.telemetry.received import ReceivedMetrics
from raylog.actors.metadata.records import ConfigChanged
from raylog.actors.metrics.exposition import LABEL_CHARACTERS_MAX
from raylog.client.channel import api_versions_request
from raylog.wire.compression import Codec, compress
from raylog.wire.errors import ErrorCode, InvalidRecord
from raylog.wire.messages.api_versions import ApiVersionsRequest
from raylog.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from raylog.wire.messages.push_telemetry import PushTelemetryRequest
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, run

PUSHED = {
    name: base64.b64decode(text)
    for name, text in json.loads(
        (Path(__file__).parents[3] / "golden" / "client_telemetry.json").read_text()
    ).items()
}
"""What real clients have pushed to Apache Kafka 4.3.1."""
CLIENT_METRICS = 16
NO_ID = bytes(16)

# ---- the payload -----------------------------------------------------------------------------


def field(number: int, body: bytes) -> bytes:
    """A field that holds a message or a text."""
    size, length = len(body), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + body


def gauge(name: str, value: bytes, attributes: bytes = b"") -> bytes:
    """A message with one metric of one number."""
    metric = field(1, name.encode()) + field(5, field(1, value + attributes))
    return field(1, field(2, field(2, metric)))


ONE = b"\x31" + (1).to_bytes(8, "little")


def test_numbers_of_librdkafka_are_read() -> None:
    found = {(one.metric, *one.attributes.items()): one for one in points(PUSHED[
        "librdkafka-2.16-consumer"])}  # fmt: skip
    assert len(found) == 15
    partitions = found[("org.apache.kafka.consumer.coordinator.assigned.partitions",)]
    assert not partitions.is_delta
    assert partitions.resource["group_id"] == "g1"
    latency = found[("org.apache.kafka.consumer.node.request.latency.avg", ("node.id", "-1"))]
    assert 0 < latency.value < 1_000
    assert found[("org.apache.kafka.consumer.connection.creation.total",)].is_delta


def test_numbers_of_java_are_read() -> None:
    found = list(points(PUSHED["java-4.3.1-producer"]))
    assert len(found) > 100
    sent = [one for one in found if one.metric == "org.apache.kafka.producer.topic.byte.total"]
    assert [(one.attributes, one.is_delta) for one in sent] == [({"topic": "tt"}, True)]


@pytest.mark.long
@pytest.mark.parametrize("data", PUSHED.values(), ids=PUSHED)
def test_a_payload_that_is_cut_anywhere_is_refused_or_shorter(data: bytes) -> None:
    whole = len(list(points(data)))
    for end in range(0, len(data), 7):
        try:
            assert len(list(points(data[:end]))) <= whole
        except InvalidRecord:
            continue


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = list(points(data))
    except InvalidRecord:
        return
    assert all(isinstance(one, Point) for one in found)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0ahe", "a field of 104 bytes where 1 are left"),
        (b"hello", "wire type 4"),
        (b"\x0b", "wire type 3"),
        (b"\x08", "cut off"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x08\x01", "a number where a message"),
        (gauge("n", field(4, b"1234")), "a number of 4 bytes instead of 8"),
    ],
)
def test_malformed_metrics_data_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        list(points(data))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (field(1, b"text"), "text"),
        (b"\x10\x01", "true"),
        (b"\x18" + b"\xff" * 9 + b"\x01", "-1"),
        (b"\x21" + b"\0" * 6 + b"\xf8\x3f", "1.5"),
        (field(5, b""), ""),  # a list, say
        (field(1, b"\xff" * 900), "\ufffd" * 200),
    ],
)
def test_values_of_attributes_are_texts(value: bytes, shown: str) -> None:
    data = gauge("n", ONE, field(7, field(1, b"key") + field(2, value)))
    assert next(points(data)).attributes == {"key": shown}


def test_reading_ends_after_so_many_fields() -> None:
    assert sum(1 for _ in points(b"\x10\x01" * 10_000 + gauge("n", ONE))) == 1
    assert sum(1 for _ in points(b"\x10\x01" * otlp.FIELDS_MAX + gauge("n", ONE))) == 0


# ---- what is kept ----------------------------------------------------------------------------


def point(metric: str, value: float, *, is_delta: bool = False, **attributes: str) -> Point:
    return Point(metric, value, is_delta, attributes, {"group_id": "g", "member_id": "m-1"})


def test_changes_are_summed_up_and_other_numbers_replaced() -> None:
    kept = ReceivedMetrics()
    for value in (2.0, 3.0, float("nan")):
        pushed = [point("total", value, is_delta=True), point("now", value, topic="t")]
        kept.take(NO_ID, "me", pushed, 0, 1_000)
    assert [one[0:1] + one[2:] for one in kept.series()] == [
        ("me", "total", "group_id=g", 5.0),
        ("me", "now", "group_id=g,topic=t", 3.0),
    ]


def test_long_texts_are_cut_before_they_are_kept() -> None:
    kept = ReceivedMetrics()
    many = {f"name-{number}": "v" * 200 for number in range(5_000)}
    pushed = [Point("n", 1, False, many, {}), Point("n", 2, False, {**many, "z": "1"}, {})]
    kept.take(NO_ID, "c" * 30_000, pushed, 0, 1_000)
    first, second = kept.series()
    assert max(map(len, (*first[:4], *second[:4]))) <= LABEL_CHARACTERS_MAX
    assert first.attributes != second.attributes


def test_attributes_make_one_series_in_any_order_and_are_not_mistaken_for_others() -> None:
    kept = ReceivedMetrics()
    for number, attributes in enumerate(
        [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "1,b=2"}, {"a": "1\\,b=2"}]
    ):
        kept.take(NO_ID, "me", [Point("n", number, False, attributes, {})], 0, 1_000)
    assert [(one.attributes, one.value) for one in kept.series()] == [
        ("a=1,b=2", 1),
        ("a=1\\,b\\=2", 2),
        ("a=1\\\\\\,b\\=2", 3),
    ]


def test_changes_that_add_up_to_no_number_are_left_out() -> None:
    kept = ReceivedMetrics()
    for value in (float("inf"), float("-inf")):
        kept.take(NO_ID, "me", [point("total", value, is_delta=True)], 0, 1_000)
    assert [one.value for one in kept.series()] == [float("inf")]


def test_a_client_that_is_silent_is_forgotten() -> None:
    kept = ReceivedMetrics()
    kept.take(b"a" * 16, "a", [point("n", 1)], 0, 1_000)
    kept.take(b"b" * 16, "b", [point("n", 1)], 0, 100_000)
    kept.expire(59_999)
    assert len(list(kept.series())) == 2
    kept.expire(60_000)
    assert [one.client_id for one in kept.series()] == ["b"]
    kept.expire(300_000)
    assert not list(kept.series())


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "SERIES_MAX", 5)
    monkeypatch.setattr(received, "SERIES_A_CLIENT_MAX", 3)
    kept = ReceivedMetrics()
    many = [point(f"n{i}", 1) for i in range(4)]
    kept.take(b"a" * 16, "a", many, 0, 1_000)
    kept.take(b"b" * 16, "b", many, 0, 1_000)
    assert [one.client_id for one in kept.series()] == ["a"] * 3 + ["b"] * 2
    assert kept.points_dropped == 3
    kept.take(b"b" * 16, "b", [point("n0", 7)], 0, 1_000)  # those that have a place go on
    assert [one.value for one in kept.series()][3] == 7
    kept.take(b"c" * 16, "c", many, 60_000, 1_000)  # the others are forgotten by now
    assert [one.client_id for one in kept.series()] == ["c"] * 3


def test_clients_of_which_nothing_is_kept_take_no_memory() -> None:
    kept = ReceivedMetrics()
    for number in range(1_000):
        nothing = [point("n", float("nan"))] if number % 2 else []
        kept.take(number.to_bytes(16, "big"), "a", nothing, 0, 1_000)
    assert not kept._clients


# ---- requests --------------------------------------------------------------------------------


async def subscribe(world: World, name: str = "s", **configs: str) -> None:
    for key, value in configs.items():
        await world.apply(ConfigChanged(CLIENT_METRICS, name, key.replace("_", "."), value))


async def subscribed(client: FakeClient, instance_id: bytes = NO_ID) -> Any:
    return await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


async def push(
    client: FakeClient, subscription: Any, data: bytes, codec: Codec = Codec.NONE
) -> ErrorCode:
    answer = await client.ask(
        PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            compression_type=codec,
            metrics=data,
        ),
        0,
    )
    return ErrorCode(answer.error_code)


@in_world(run)
async def test_a_client_is_told_what_to_push_as_by_apache_kafka(world: World) -> None:
    client = world.client()
    subscription = await subscribed(client)
    assert (subscription.error_code, subscription.requested_metrics) == (0, [])
    assert subscription.push_interval_ms == 300_000
    assert subscription.accepted_compression_types == [4, 3, 1, 2]
    assert subscription.telemetry_max_bytes == TELEMETRY_BYTES_MAX
    assert subscription.delta_temporality
    assert subscription.client_instance_id != NO_ID
    again = await subscribed(client, subscription.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    own = bytes(range(16))
    assert (await subscribed(world.client(), own)).client_instance_id == own


@in_world(run)
async def test_a_new_subscription_is_reported_at_once_and_another_setting_changes_nothing(
    world: World,
) -> None:
    client = world.client()
    subscription = await subscribed(client)
    await subscribe(world, metrics="*", interval_ms="1000")
    now = await subscribed(client, subscription.client_instance_id)
    assert (now.requested_metrics, now.push_interval_ms) == (["*"], 1_000)
    assert now.subscription_id != subscription.subscription_id
    assert await push(client, subscription, b"") == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    await world.topic("other")
    await world.apply(ConfigChanged(2, "other", "retention.ms", "1"))
    again = await subscribed(client, subscription.client_instance_id)
    assert again.error_code == 0  # it may ask again after that error, once
    again = await subscribed(client, subscription.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_clients_hear_of_it_while_there_is_a_subscription() -> None:
    async def announced(world: World) -> set[int]:
        answer = await world.client().ask(api_versions_request(), 3)
        return {71, 72} & {one.api_key for one in answer.api_keys}

    async def scenario(world: World) -> None:
        assert await announced(world) == set()
        await subscribe(world, metrics="*")
        assert await announced(world) == {71, 72}
        await world.apply(ConfigChanged(CLIENT_METRICS, "s", "metrics", None))
        assert await announced(world) == set()
        subscription = await subscribed(world.client())  # of before: it is answered all the same
        assert subscription.requested_metrics == []

    run(scenario)


@in_world(run)
async def test_software_that_a_client_names_is_matched(world: World) -> None:
    await subscribe(world, metrics="a.", match="client_software_name=lib.*")
    named, unnamed = world.client(), world.client()
    await named.ask(
        ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2"), 3
    )
    assert (await subscribed(named)).requested_metrics == ["a."]
    await unnamed.ask(ApiVersionsRequest(), 2)
    assert (await subscribed(unnamed)).requested_metrics == []
    await subscribe(world, match="client_software_version=unknown")
    assert (await subscribed(world.client())).requested_metrics == ["a."]


@pytest.mark.parametrize("codec", Codec)
@in_world(run)
async def test_a_push_is_kept_for_the_next_scrape(world: World, *, codec: Codec) -> None:
    await subscribe(world, metrics="*", interval_ms="1000")
    client = world.client()
    subscription = await subscribed(client)
    data = PUSHED["librdkafka-2.16-producer"]
    assert await push(client, subscription, compress(codec, data), codec) == ErrorCode.NONE
    kept = list(world.gateway.telemetry.received.series())
    assert len(kept) == 10
    assert {one.client_id for one in kept} == {"test"}
    assert world.gateway.telemetry.pushes == {"NONE": 1}


@pytest.mark.parametrize(
    ("data", "codec"),
    [
        (b"hello", Codec.NONE),
        (b"hello", Codec.GZIP),
        (compress(Codec.ZSTD, bytes(TELEMETRY_BYTES_MAX + 1)), Codec.ZSTD),
    ],
    ids=["no message", "not compressed", "too large inside"],
)
@in_world(run)
async def test_a_push_that_cannot_be_read_is_refused(
    world: World, *, data: bytes, codec: Codec
) -> None:
    await subscribe(world, metrics="*")
    client = world.client()
    subscription = await subscribed(client)
    assert await push(client, subscription, data, codec) == ErrorCode.INVALID_RECORD
    assert not list(world.gateway.telemetry.received.series())
    assert world.gateway.telemetry.pushes == {"INVALID_RECORD": 1}


@pytest.mark.parametrize("instance_id", [NO_ID, (1).to_bytes(16, "big")])
@in_world(run)
async def test_a_push_without_an_instance_id_is_refused(
    world: World, *, instance_id: bytes
) -> None:
    request = PushTelemetryRequest(client_instance_id=instance_id)
    answer = await world.client().ask(request, 0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@in_world(run)
async def test_a_push_that_is_too_large_is_told_so(world: World) -> None:
    client = FakeClient(world.gateway)
    client.connection._request_bytes_max = 100 << 20
    subscription = await subscribed(client)
    assert await push(client, subscription, bytes(2 << 20)) == ErrorCode.TELEMETRY_TOO_LARGE


@in_world(run)
async def test_one_connection_is_throttled_whatever_ids_it_makes_up(world: World) -> None:
    await subscribe(world, metrics="*", interval_ms="1000")
    client = world.client()
    subscription = await subscribed(client, b"a" * 16)
    assert await push(client, subscription, gauge("n", ONE)) == ErrorCode.NONE
    again = await subscribed(client, b"b" * 16)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    subscription.client_instance_id = b"c" * 16
    assert await push(client, subscription, gauge("n", ONE)) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert len(list(world.gateway.telemetry.received.series())) == 1
