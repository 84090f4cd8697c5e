"""What kind of broker it is, by its supported features."""

from __future__ import annotations

import pytest

from raylog.client import Features
from raylog.loadtest.targets import kafka_of


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, "Kafka-compatible"),
        (7, "Apache Kafka 3.3"),
        (19, "Apache Kafka 3.7"),
        (25, "Apache Kafka 4.0"),
        (27, "Apache Kafka 4.1"),
        (30, "Apache Kafka 4.3"),
        (31, "Apache Kafka 4.4"),
        (99, "Apache Kafka 4.4 or newer"),
    ],
)
def test_releases_of_kafka(level: int, expected: str) -> None:
    assert (
        kafka_of(Features({"metadata.version": (1, level)}, {"metadata.version": 1}, 5)) == expected
    )


def test_brokers_that_support_no_features() -> None:
    assert kafka_of(Features({}, {}, -1)) == "Kafka-compatible"
