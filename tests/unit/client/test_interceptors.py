"""Client interceptors: found by name, run in order, and never harmful to a record."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.errors import InvalidSetting
from raylog.client.interception import Chain
from raylog.client.interceptors import (
    ENTRY_POINT_GROUP,
    ClientInterceptor,
    ConsumerRecord,
    ProducerRecord,
    RecordMetadata,
    available,
    load,
)
from raylog.client.opentelemetry import OpenTelemetryInterceptor
from tests.support.plugins import installed

RECORD = ProducerRecord("t", b"v")
READ: ConsumerRecord = ConsumerRecord("t", 0, 7, 1, None, b"v", ())
METADATA = RecordMetadata("t", 0, 7, 1)

STRANGERS = """
    from raylog.client.interceptors import ClientInterceptor

    class Upper(ClientInterceptor):
        def on_send(self, record):
            return record._replace(value=record.value.upper())

    class Odd:
        def on_send(self, record):
            return record

    class Dear(ClientInterceptor):
        def __init__(self, price):
            self.price = price
"""


class Recording(ClientInterceptor):
    """Adds its mark to the records it sees."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.seen: list[object] = []
        self.settings: Mapping[str, object] = {}

    def configure(self, settings: Mapping[str, object]) -> None:
        if "refused" in settings:
            raise ValueError("expected no setting refused")
        self.settings = settings

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        assert isinstance(record.value, bytes)
        return record._replace(value=record.value + self.mark)

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        self.seen.append((metadata, failure))

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        return [
            record._replace(value=record.value + self.mark)
            for record in records
            if isinstance(record.value, bytes)
        ]

    def on_commit(self, offsets: Mapping[TopicPartition, object]) -> None:
        self.seen.append(offsets)

    def close(self) -> None:
        self.seen.append("closed")


class Broken(ClientInterceptor):
    """Raises in every method except configure."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError(record.topic)

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        raise RuntimeError(metadata.topic)

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        raise RuntimeError(len(records))

    def on_commit(self, offsets: Mapping[TopicPartition, object]) -> None:
        raise RuntimeError(len(offsets))

    def close(self) -> None:
        raise RuntimeError("close")


def test_each_gets_what_the_one_before_it_returned() -> None:
    chain = Chain([Recording(b"1"), Recording(b"2")])
    assert chain
    assert chain.on_send(RECORD).value == b"v12"
    assert [record.value for record in chain.on_consume([READ])] == [b"v12"]


def test_an_interceptor_that_raises_is_logged_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    last = Recording(b"!")
    chain = Chain([Broken(), last])
    with caplog.at_level(logging.ERROR):
        assert chain.on_send(RECORD).value == b"v!"
        assert [record.value for record in chain.on_consume([READ])] == [b"v!"]
        chain.on_acknowledgement(METADATA, None)
        chain.on_commit({})
        chain.close()
    assert last.seen == [(METADATA, None), {}, "closed"]
    raised = [record.getMessage() for record in caplog.records]
    assert len(raised) == 5
    assert all("Broken raised in" in message for message in raised)


def test_a_chain_without_interceptors_is_false_and_changes_nothing() -> None:
    chain = Chain()
    assert not chain
    assert chain.on_send(RECORD) is RECORD


def test_settings_reach_all_and_may_be_refused() -> None:
    one = Recording(b"1")
    Chain([one], {"client.id": "c"})
    assert one.settings == {"client.id": "c"}
    with pytest.raises(InvalidSetting, match=r"Recording: expected no setting refused"):
        Chain([Recording(b"1")], {"refused": True})


def test_interceptors_are_found_by_name(tmp_path: Path) -> None:
    with installed(tmp_path, ENTRY_POINT_GROUP, STRANGERS, {"upper": "Upper"}):
        assert [type(one).__name__ for one in load("upper, upper")] == ["Upper", "Upper"]
        assert Chain(["upper", Recording(b"1")]).on_send(RECORD).value == b"V1"
        assert Chain("upper").on_send(RECORD).value == b"V"
        assert "upper" in [plugin.name for plugin in available() if plugin.state == "ready"]


def test_a_name_that_nobody_registered_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with (
        installed(tmp_path, ENTRY_POINT_GROUP, STRANGERS, {"upper": "Upper"}),
        pytest.raises(InvalidSetting, match=r"no client interceptor 'uper'.*did you mean upper\?"),
    ):
        load(["uper"])


@pytest.mark.parametrize(
    ("target", "wrong"),
    [("Odd", "has no method configure"), ("Dear", "does not load: TypeError"), ("Gone", "Gone")],
)
def test_invalid_interceptor_is_named_in_the_error(tmp_path: Path, target: str, wrong: str) -> None:
    with (
        installed(tmp_path, ENTRY_POINT_GROUP, STRANGERS, {"one": target}),
        pytest.raises(InvalidSetting, match=wrong),
    ):
        load("one")


def test_the_one_that_is_shipped_is_found() -> None:
    (shipped,) = load("opentelemetry")
    assert isinstance(shipped, OpenTelemetryInterceptor)
    ready = [plugin.name for plugin in available() if plugin.state == "ready"]
    assert ready == ["opentelemetry"]
