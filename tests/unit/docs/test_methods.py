"""The tables list every public method of other clients, with ours or the reason for none."""

import re
from pathlib import Path
from types import ModuleType

import aiokafka
import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient

import raylog.client
from tests.support.kafka_python import kafka

CLIENT = Path(__file__).parents[3] / "docs" / "client"
THEIRS = [
    (kafka.KafkaProducer, "from-kafka-python.md"),
    (kafka.KafkaConsumer, "from-kafka-python.md"),
    (kafka.KafkaAdminClient, "from-kafka-python.md"),
    (aiokafka.AIOKafkaProducer, "from-aiokafka.md"),
    (aiokafka.AIOKafkaConsumer, "from-aiokafka.md"),
    (AIOKafkaAdminClient, "from-aiokafka.md"),
    (confluent_kafka.Producer, "from-confluent-kafka.md"),
    (confluent_kafka.Consumer, "from-confluent-kafka.md"),
    (AdminClient, "from-confluent-kafka.md"),
]
_ROW = re.compile(r"^\| `(\w+)\.(\w+)` \| (?:`(\w+)\.(\w+)`|—) \| (.*) \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "page"),
    THEIRS,
    ids=lambda one: f"{one.__module__}.{one.__name__}" if isinstance(one, type) else "",
)
def test_every_method_is_there_or_the_reason_why_not(kind: type, page: str) -> None:
    public = {name for name in dir(kind) if not name.startswith("_") and name.islower()}
    rows = [row for row in _ROW.findall((CLIENT / page).read_text()) if row[0] == kind.__name__]
    assert {row[1] for row in rows} == public
    assert len(rows) == len(public)
    for _, theirs, our_class, ours, note in rows:
        if our_class:
            assert callable(getattr(getattr(raylog.client, our_class), ours)), theirs
        else:
            assert note.strip(), f"{theirs}: no reason"


_NAME = re.compile(r"^\| `(\w+)\.(\w+)` \| (?:`raylog\.client\.(\w+)`|—) \| (.*) \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("package", "page"), [(kafka, "from-kafka-python.md"), (aiokafka, "from-aiokafka.md")]
)
def test_every_other_name_is_there_or_the_reason_why_not(package: ModuleType, page: str) -> None:
    rows = [row for row in _NAME.findall((CLIENT / page).read_text()) if row[0] == package.__name__]
    assert sorted(row[1] for row in rows) == sorted(package.__all__)
    for _, theirs, ours, note in rows:
        if ours:
            assert ours in raylog.client.__all__, theirs
        else:
            assert note.strip(), f"{theirs}: no reason"
