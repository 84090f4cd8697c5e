"""Helpers for tests of lost directories: records, and what brokers hold of them."""

import shutil
from pathlib import Path

from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.client import EARLIEST, BlockingClient, TopicPartition

RECORDS = 300
VALUES = [b"%d" % number for number in range(RECORDS)]


def write(bootstrap: str, topic: str) -> None:
    """Write all records to partition 0."""
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for value in VALUES:
            producer.send(topic, value, partition=0)


def read(bootstrap: str, topic: str) -> list[bytes | None]:
    """Read as many records of partition 0 as were written, or what arrives within 10 s."""
    values: list[bytes | None] = []
    with BlockingClient(bootstrap) as client:
        consumer = client.consumer()
        consumer.assign({TopicPartition(topic, 0): EARLIEST})
        for _ in range(50):
            values += (r.value for group in consumer.poll(200) for r in group.records)
            if len(values) >= RECORDS:
                break
    return values


def contents(data: Path, *brokers: int) -> dict[str, bytes]:
    """Return all segments of the partitions of some brokers."""
    return {
        str(path.relative_to(data)): path.read_bytes().rstrip(b"\0")
        for broker_id in brokers
        for path in (data / f"broker-{broker_id}" / "topics").rglob("*.log")
    }


def call(*arguments: object) -> tuple[int, str]:
    """Run `raylog metadata rebuild`; return its exit code and output."""
    result = CliRunner().invoke(app, ["metadata", "rebuild", *map(str, arguments)])
    failure = "" if result.exception is None else str(result.exception)
    return result.exit_code, result.output + failure


def lose_metadata(data: Path) -> None:
    """Remove the metadata log of every voter."""
    for directory in data.glob("broker-*/metadata"):
        shutil.rmtree(directory)
