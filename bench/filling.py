"""Fills topics with records, using librdkafka."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable

from confluent_kafka import Producer

KEY_BYTES = 10
_VALUES = 500


def fill(address: str, topic: str, numbers: Iterable[int], size: int) -> None:
    """Write a record of `size` bytes with a random value and a key of KEY_BYTES per number."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 20_000,
            "delivery.report.only.error": True,
            "on_delivery": refused,
        }
    )
    rng = random.Random(size)
    values = [rng.randbytes(size - KEY_BYTES) for _ in range(_VALUES)]
    for place, number in enumerate(numbers):
        while True:
            try:
                producer.produce(topic, values[place % _VALUES], b"%0*d" % (KEY_BYTES, number))
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        sys.exit("records were left unsent")


def refused(error: object, _: object = None) -> None:
    """Delivery callback that ends the benchmark if a record was not delivered."""
    sys.exit(f"a record was refused: {error}")
