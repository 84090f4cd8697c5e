"""Apache Kafka and Raylog give an administrator the same answers, field by field.

`_plain` first removes what may differ: texts for people, ids, addresses, the order of items,
settings that only one of them has, and sizes of disks.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bench.peers import ApacheKafka
from raylog.testing import EmbeddedBroker
from raylog.wire.messages.fetch import PartitionData
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.produce import PartitionProduceResponse
from tests.conformance.admin_script import Step, script
from tests.conformance.conftest import OF_KAFKA
from tests.conformance.tools import java_tools
from tests.support.wire_client import WireClient

pytestmark = OF_KAFKA
PATIENCE_S = 20.0
SETTINGS = {"num.partitions": "4", "log.segment.delete.delay.ms": "1000"}
Transcript = dict[tuple[str, int], Any]
"""(label, version) to what was answered, in plain values."""

UNLIKE = {
    "min.insync.replicas",  # Kafka pins it for the whole cluster, for eligible leader replicas
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "local.retention.ms",
    "local.retention.bytes",  # tiered storage, which Raylog does not have
}
"""Settings left out of the comparison, beside Raylog's own."""

VAGUE = {"error_message", "documentation", "throttle_time_ms", "host", "port", "cluster_id", "rack"}
"""Fields that say the same in other words, or name the broker."""


@pytest.fixture(scope="module")
def transcripts() -> Iterator[tuple[Transcript, Transcript]]:
    """What Apache Kafka and Raylog answered to the whole script."""
    java_tools()
    with ExitStack() as running:
        kafka = running.enter_context(ApacheKafka(SETTINGS).run())
        raylog = running.enter_context(EmbeddedBroker(settings=SETTINGS, first_broker_id=1))
        yield _hold(kafka.address), _hold(raylog.bootstrap)


def _hold(address: str) -> Transcript:
    host, _, port = address.rpartition(":")
    transcript: Transcript = {}
    with WireClient(host, int(port)) as client:
        for step in script():
            for version in step.versions:
                names = _names(client)
                answer = _answer(client, step, version, {name: i for i, name in names.items()})
                key = (step.label, version)
                assert key not in transcript, f"two steps are called {key}"
                transcript[key] = _plain(answer, names)
    return transcript


def _names(client: WireClient) -> dict[bytes, str]:
    """Topic ids, and the topics' names."""
    answer = client.ask(MetadataRequest(topics=None), 12)
    return {topic.topic_id: topic.name for topic in answer.topics}


def _answer(client: WireClient, step: Step, version: int, ids: dict[str, bytes]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = client.ask(step.request(ids), version)
        if step.until(answer):
            return answer
        assert time.monotonic() < deadline, f"{step.label} v{version}: still {answer}"
        time.sleep(0.05)


def _plain(value: Any, names: dict[bytes, str]) -> Any:
    """A message as plain values that can be compared between brokers."""
    if dataclasses.is_dataclass(value):
        fields = {field.name for field in dataclasses.fields(value)} - VAGUE
        if isinstance(value, PartitionProduceResponse) and value.error_code:
            fields -= {"record_errors", "log_start_offset"}  # Raylog names the error only
        if isinstance(value, PartitionData) and value.error_code:
            fields -= {"aborted_transactions"}  # none, or an empty list: Kafka answers both
        return {name: _field(name, getattr(value, name), names) for name in sorted(fields)}
    if isinstance(value, list):
        items = [_plain(item, names) for item in value if not _is_unlike(item)]
        return sorted(items, key=_order)
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def _is_unlike(item: Any) -> bool:
    name = getattr(item, "name", None) or ""
    return name in UNLIKE or name.startswith("raylog.")


def _order(item: Any) -> str:
    """Sorts items by what they are called."""
    known = ("name", "topic", "resource_name", "feature", "partition_index", "partition")
    named = [repr(item.get(key)) for key in known] if isinstance(item, dict) else []
    return repr((named, item))


def _field(name: str, value: Any, names: dict[bytes, str]) -> Any:
    match name:
        case "topic_id":
            return names.get(value, "none" if value == bytes(16) else "some")
        case "log_dir":
            return "a directory"
        case "total_bytes" | "usable_bytes":
            return value > 0
        case "producer_id":
            return value >= 0
        case "partition_size":
            return value > 0
        case _:
            return _plain(value, names)


STEPS = [(step.label, version) for step in script() for version in step.versions]


@pytest.mark.parametrize(
    ("label", "version"), STEPS, ids=[f"{label} v{version}" for label, version in STEPS]
)
def test_the_same_answer(
    transcripts: tuple[Transcript, Transcript], label: str, version: int
) -> None:
    kafka, raylog = transcripts
    assert list(_differences(kafka[(label, version)], raylog[(label, version)], "")) == []


def _differences(kafka: Any, raylog: Any, path: str) -> Iterator[str]:
    """Where two plain values differ, as "path: Apache Kafka's value, Raylog's value"."""
    if isinstance(kafka, dict) and isinstance(raylog, dict) and kafka.keys() == raylog.keys():
        for name in kafka:
            yield from _differences(kafka[name], raylog[name], f"{path}.{name}")
    elif isinstance(kafka, list) and isinstance(raylog, list) and len(kafka) == len(raylog):
        for index, (theirs, ours) in enumerate(zip(kafka, raylog, strict=True)):
            yield from _differences(theirs, ours, f"{path}[{index}]")
    elif kafka != raylog:
        yield f"{path}: {kafka!r}, {raylog!r}"
