"""Settings that contradict each other are refused, as by Apache Kafka."""

from __future__ import annotations

import pytest

from raylog.actors.config import BROKER_KEYS, BrokerSettings
from raylog.actors.config.agreement import check_agreement
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InvalidConfig


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"queued.max.request.bytes": "1000"},
            r"queued\.max\.request\.bytes \(1000\) .* socket\.request\.max\.bytes \(104857600\)",
        ),
        (
            {"queued.max.request.bytes": "5000", "socket.request.max.bytes": "5001"},
            r"\(5000\) .* \(5001\)",
        ),
        ({"max.connections.per.ip": "0"}, r"can be set to zero only if max\.connections\.per\.ip"),
        (
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": " , "},
            r"can be set to zero only if max\.connections\.per\.ip\.overrides property is set",
        ),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "greater than 1048576"),
        (
            {"replica.fetch.wait.max.ms": "600", "replica.lag.time.max.ms": "599"},
            r"wait\.max\.ms \(600\) must be less than or equal to .*lag\.time\.max\.ms \(599\)",
        ),
        ({"broker.heartbeat.interval.ms": "6000"}, r"less than broker\.session\.timeout\.ms"),
        ({"group.consumer.session.timeout.ms": "44999"}, r"min\.session\.timeout\.ms \(45000\)"),
        ({"group.consumer.session.timeout.ms": "60001"}, r"max\.session\.timeout\.ms \(60000\)"),
        ({"group.consumer.min.session.timeout.ms": "60001"}, r"session\.timeout\.ms"),
        ({"group.consumer.heartbeat.interval.ms": "4999"}, r"min\.heartbeat\.interval\.ms"),
        ({"group.consumer.heartbeat.interval.ms": "15001"}, r"max\.heartbeat\.interval\.ms"),
        ({"group.consumer.assignment.interval.ms": "15001"}, r"max\.assignment\.interval\.ms"),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "45000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            r"heartbeat\.interval\.ms \(45000\) must be less than .*session\.timeout\.ms \(45000\)",
        ),
    ],
)
def test_contradicting_settings_are_refused_with_their_values(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        check_agreement(BrokerSettings(given).raw)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"queued.max.request.bytes": "104857600"},
        {"queued.max.request.bytes": "0"},
        {"queued.max.request.bytes": "-5"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:1"},
        {"log.cleaner.dedupe.buffer.size": "1048577"},
        {"replica.fetch.wait.max.ms": "30000"},
    ],
)
def test_consistent_settings_are_accepted(given: dict[str, str]) -> None:
    check_agreement(BrokerSettings(given).raw)


def test_only_what_is_changed_is_looked_at() -> None:
    settings = BrokerSettings({"max.connections.per.ip": "0"})
    check_agreement(settings.raw, {"log.retention.ms"})
    with pytest.raises(InvalidConfig):
        check_agreement(settings.raw, {"max.connections.per.ip.overrides"})


def test_an_embedded_broker_does_not_start_on_a_contradiction() -> None:
    with pytest.raises(InvalidConfig, match=r"queued\.max\.request\.bytes \(7\)"):
        EmbeddedBroker(settings={"queued.max.request.bytes": "7"}).start()


def test_every_key_of_a_rule_is_a_setting() -> None:
    asked: set[str] = set()

    def value(name: str) -> str | None:
        asked.add(name)
        return BROKER_KEYS[name].default

    check_agreement(value)
    assert len(asked) > 15
