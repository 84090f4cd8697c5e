"""The tables of keys against what Apache Kafka 4.3.1 reports about its own."""

from pathlib import Path

import pytest

from raylog.actors.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, ConfigType, parse

_ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka_keys.tsv").read_text().splitlines()
    if not line.startswith("#")
]
_DEVIATIONS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "controller.quorum.auto.join.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "internal.segment.bytes": "",
    "log.flush.interval.ms": "9223372036854775807",
    "socket.receive.buffer.bytes": "-1",
    "socket.send.buffer.bytes": "-1",
}
"""Defaults that differ, as the module's docstring lists them."""
_OURS = {
    "broker.replacement.delay.ms",
    "drain.timeout.ms",
    "external.host.command",
    "gateway.actors",
    "gateway.in.replica.process",
    "health.listener",
    "link.advertised.host",
    "link.bind.host",
    "link.port.range",
    "metadata.log.fsync",
    "metrics.groups.max",
    "metrics.report.interval.ms",
    "metrics.reporters",
    "metrics.topics.max",
    "raylog.interceptors.files.dir",
    "raylog.interceptors.timeout.ms",
    "replica.actors.max",
    "replica.actors.spare",
}
_STATIC = {
    "listeners",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
}
"""Keys that Kafka can change at run time: moving listeners is not supported, nor is changing what
the cleaners of running processes obey."""
_LOOSE = {
    "broker.heartbeat.interval.ms",
    "broker.id",
    "broker.session.timeout.ms",
    "default.replication.factor",
    "group.initial.rebalance.delay.ms",
    "internal.segment.bytes",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "max.connection.creation.rate",
    "max.connections",
    "offset.metadata.max.bytes",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
"""Keys whose range Kafka checks elsewhere or not at all; it takes 0 for max.connections."""


def _keys(scope: str) -> dict[str, ConfigKey]:
    return TOPIC_KEYS if scope == "TOPIC" else BROKER_KEYS


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_type_and_default_are_kafkas(row: list[str]) -> None:
    scope, name, kind, default, _validator, _dynamic = row
    key = _keys(scope)[name]
    assert key.type.name == kind
    if kind == "LIST" and default.startswith("["):
        default = default.strip("[]").replace(", ", ",")
    expected = _DEVIATIONS.get(name, None if default == "null" else default)
    assert key.default == expected


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_range_is_kafkas(row: list[str]) -> None:
    scope, name, kind, _default, validator, _dynamic = row
    key = _keys(scope)[name]
    if key.choices or name in _LOOSE or kind in ("LIST", "BOOLEAN", "STRING"):
        return
    low = "" if key.low is None else f"{key.low}"
    ours = f"[{low},...]" if key.high is None else f"[{low},...,{key.high}]"
    also = "".join(f" or {value}" for value in key.also)
    assert (ours + also if low else "null") == validator


@pytest.mark.parametrize("row", [row for row in _ROWS if row[5]], ids=lambda row: row[1])
def test_dynamic_broker_keys_match_kafka(row: list[str]) -> None:
    name = row[1]
    expected = row[5] == "True" and name not in _STATIC
    assert BROKER_KEYS[name].dynamic is expected


def test_the_remaining_keys_are_ours() -> None:
    seen = {(row[0], row[1]) for row in _ROWS}
    assert {name for name in BROKER_KEYS if ("BROKER", name) not in seen} == _OURS
    assert {name for name in TOPIC_KEYS if ("TOPIC", name) not in seen} == {
        "raylog.interceptors",
        "raylog.replica.dedicated",
        "raylog.replicas.auto.grow",
    }


@pytest.mark.parametrize(
    "key", [*TOPIC_KEYS.values(), *BROKER_KEYS.values(), *GROUP_KEYS.values()], ids=lambda k: k.name
)
def test_every_default_is_a_value_of_its_key(key: ConfigKey) -> None:
    if key.default is not None:
        parse(key, key.default)
    assert key.documentation.endswith(".")
    assert key.type in ConfigType


def test_every_synonym_is_a_broker_key() -> None:
    named = [name for key in TOPIC_KEYS.values() for name in key.synonyms]
    assert set(named) <= set(BROKER_KEYS)
    assert len(named) == len(set(named))
