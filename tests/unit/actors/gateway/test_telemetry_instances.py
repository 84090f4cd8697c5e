"""When a client instance may ask and push, and what it is asked for (KIP-714).

The cases were run on Apache Kafka 4.3.1, and expect its error codes.
"""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.config.client_metrics import Subscription, subscription_of
from raylog.actors.gateway.telemetry.instance import TELEMETRY_BYTES_MAX, ClientInstance
from raylog.actors.gateway.telemetry.subscriptions import Asked, asked_of
from raylog.wire.errors import (
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from raylog.wire.messages.push_telemetry import PushTelemetryRequest

INSTANCE = bytes(range(16))
CLIENT = {
    "client_instance_id": "AAECAwQFBgcICQoLDA0ODw",
    "client_id": "billing-1",
    "client_software_name": "librdkafka",
    "client_software_version": "2.16.0",
    "client_source_address": "127.0.0.1",
    "client_source_port": "40000",
}


def instance() -> ClientInstance:
    """One that pushes each 400 ms, and has asked at 0."""
    new = ClientInstance(INSTANCE, (), Asked(("*",), 400, 7))
    new.ask(0)
    return new


def push(
    subscription_id: int = 7, *, terminating: bool = False, codec: int = 0, size: int = 1
) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        client_instance_id=INSTANCE,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=bytes(size),
    )


def test_the_first_push_may_follow_at_once_and_the_next_after_an_interval() -> None:
    client = instance()
    client.push(push(), 1)
    for now_ms in (2, 400):
        with pytest.raises(ThrottlingQuotaExceeded, match="400 ms"):
            client.push(push(), now_ms)
    client.push(push(), 401)


def test_another_id_on_the_same_connection_gets_no_interval_of_its_own() -> None:
    first = instance()
    first.push(push(), 1)
    other = ClientInstance(bytes(16), (), Asked(("*",), 400, 7), first)
    with pytest.raises(ThrottlingQuotaExceeded, match="400 ms"):
        other.ask(2)
    with pytest.raises(ThrottlingQuotaExceeded, match="400 ms"):
        other.push(push(), 400)
    other.push(push(), 401)


def test_metrics_that_nobody_asked_for_are_refused() -> None:
    client = ClientInstance(INSTANCE, (), Asked((), 400, 7))
    client.ask(0)
    with pytest.raises(InvalidRequest, match="asked for none"):
        client.push(push(), 1)
    client.push(push(size=0), 401)


def test_subscription_request_is_allowed_once_per_interval() -> None:
    client = instance()
    client.push(push(), 300)
    with pytest.raises(ThrottlingQuotaExceeded):
        client.ask(699)
    client.ask(700)
    with pytest.raises(ThrottlingQuotaExceeded):
        client.ask(701)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (push(8), UnknownSubscriptionId),
        (push(codec=5), UnsupportedCompressionType),
        (push(codec=-1), UnsupportedCompressionType),
    ],
)
def test_subscription_request_is_allowed_at_once_after_a_refused_push(
    wrong: PushTelemetryRequest, error: type[KafkaError]
) -> None:
    client = instance()
    with pytest.raises(error):
        client.push(wrong, 1)
    client.ask(2)
    with pytest.raises(ThrottlingQuotaExceeded):  # the push that was refused was this interval's
        client.push(push(), 3)
    with pytest.raises(ThrottlingQuotaExceeded):
        client.ask(4)


def test_oversized_telemetry_push_is_refused() -> None:
    client = instance()
    client.push(push(size=TELEMETRY_BYTES_MAX), 1)
    with pytest.raises(TelemetryTooLarge, match="1048577 bytes of metrics: at most 1048576"):
        client.push(push(size=TELEMETRY_BYTES_MAX + 1), 500)
    with pytest.raises(ThrottlingQuotaExceeded):
        client.ask(501)


def test_the_last_push_comes_at_any_time_and_nothing_after_it() -> None:
    client = instance()
    client.push(push(), 1)
    client.push(push(terminating=True), 2)
    for last in (push(terminating=True), push()):
        with pytest.raises(InvalidRequest, match="the last one"):
            client.push(last, 3)
    client.push(push(), 403)  # as in Apache Kafka: a refused push takes the mark back


def subscription(**configs: str) -> Subscription:
    return subscription_of({name.replace("_", "."): text for name, text in configs.items()})


def test_a_client_that_no_subscription_matches_is_asked_for_nothing() -> None:
    other = subscription(metrics="*", interval_ms="100", match="client_software_name=java")
    for subscriptions in ((), (other,)):
        asked = asked_of(subscriptions, INSTANCE, CLIENT)
        assert asked[:2] == ((), 300_000)


def test_subscriptions_that_match_are_taken_together() -> None:
    first = subscription(metrics="b.,a.", interval_ms="60000")
    second = subscription(metrics="a.,c.", interval_ms="2000", match="client_id=billing-.*")
    assert asked_of((first, second), INSTANCE, CLIENT)[:2] == (("a.", "b.", "c."), 2_000)
    every = subscription(metrics="*")
    assert asked_of((first, every), INSTANCE, CLIENT)[:2] == (("*",), 60_000)
    only_faster = subscription(interval_ms="100")
    assert asked_of((first, only_faster), INSTANCE, CLIENT)[:2] == (("a.", "b."), 100)


@pytest.mark.parametrize(
    ("match", "is_met"),
    [
        ("client_id=billing-1", True),
        ("client_id=billing", False),  # the whole value must match
        ("client_instance_id=.*ODw, client_source_port = 4\\d+", True),
        ("client_software_name=librdkafka,client_software_version=1.*", False),
        ("client_source_address=127\\..*", True),
    ],
)
def test_a_selector_matches_the_whole_value(match: str, is_met: bool) -> None:
    asked = asked_of((subscription(metrics="*", match=match),), INSTANCE, CLIENT)
    assert asked.metrics == (("*",) if is_met else ())


def test_the_subscription_id_changes_with_what_is_asked_and_with_the_client() -> None:
    asked: list[Any] = [
        asked_of((subscription(metrics=metrics, interval_ms=interval),), one, CLIENT)
        for metrics in ("a.", "b.")
        for interval in ("100", "200")
        for one in (INSTANCE, bytes(16))
    ]
    ids = {one.subscription_id for one in asked}
    assert len(ids) == len(asked)
    assert all(-(2**31) <= one < 2**31 for one in ids)
