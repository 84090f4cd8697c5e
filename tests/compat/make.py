"""Data directories as this build writes them: `python -m tests.compat.make data/<commit>`.

Two archives of one cluster of three brokers: `clean.tar.xz` after a shutdown, `crashed.tar.xz` of
processes that ended at once, and `contents.json`, what clients read from it. Later builds must open
them (`test_directories.py`). Run it with a commit whose formats are to be kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.testing import EmbeddedBroker
from tests.compat.contents import PARTITIONS, read_contents

BROKERS = 3
LONG_NAME = "long-" + "n" * 244
TOPICS = {
    "plain": {"segment.bytes": "1048576"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "1048576"},
    "transactions": {},
    "settings": {"retention.ms": "-1", "max.message.bytes": "2000000", "cleanup.policy": "delete"},
    LONG_NAME: {},
    "deleted": {},
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EXITED = 9


def fill(bootstrap: str) -> None:
    """Topics, records of every codec, transactions with each outcome, groups of both protocols."""
    _make_topics(bootstrap)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(300):
            value = f"{codec}-{number}-" + "v" * 6_000  # enough for a second segment
            producer.produce("plain", value, key=f"k{number}", partition=number % PARTITIONS)
            producer.produce("compacted", value, key=f"k{number % 30}", partition=number % 3)
            producer.produce(LONG_NAME, value, partition=0)
        assert producer.flush(60) == 0
    _write_transactions(bootstrap)
    for protocol in ("classic", "consumer"):
        _commit(bootstrap, protocol)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _wait_for(admin.delete_topics(["deleted"]))


def _make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _wait_for(
        admin.create_topics(
            [
                NewTopic(name, PARTITIONS, BROKERS, config=dict(config))
                for name, config in TOPICS.items()
            ]
        )
    )


def _wait_for(futures: Mapping[str, Future[Any]]) -> None:
    for future in futures.values():
        future.result(60)


def _write_transactions(bootstrap: str) -> None:
    """Committed, aborted, committed, and one that stays open."""
    for number, end in enumerate(("commit", "abort", "commit", "open")):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"writer-{number}"}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for record in range(20):
            producer.produce(
                "transactions", f"{end}-{number}-{record}", partition=record % PARTITIONS
            )
        producer.flush(60)
        if end == "commit":
            producer.commit_transaction(60)
        elif end == "abort":
            producer.abort_transaction(60)


def _commit(bootstrap: str, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["plain"])
    read = 0
    while read < 600:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        read += 1
    consumer.commit(
        offsets=[TopicPartition("plain", n, 100 + n, metadata="café") for n in range(PARTITIONS)],
        asynchronous=False,
    )
    consumer.close()


def _fill_and_leave(data: Path, *, crash: bool) -> None:
    with EmbeddedBroker(BROKERS, data=data) as cluster:
        if not (data / "filled").exists():
            fill(cluster.bootstrap)
            contents = read_contents(cluster.bootstrap)
            (data / "filled").write_text(json.dumps(contents, indent=1, sort_keys=True))
        if crash:
            sys.stdout.flush()
            os._exit(EXITED)


def _archive(data: Path, target: Path) -> None:
    with tarfile.open(target, "w:xz", preset=9) as archive:
        archive.add(data, ".")


def main() -> None:
    """Write archives of a cluster that was shut down and of the same one crashed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--data", type=Path)
    arguments.add_argument("--crash", action="store_true")
    given = arguments.parse_args()
    if given.data:
        _fill_and_leave(given.data, crash=given.crash)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        data.mkdir()
        again = [sys.executable, "-m", "tests.compat.make", str(given.out), "--data", str(data)]
        assert subprocess.run([*again, "--crash"], check=False).returncode == EXITED
        (given.out / "contents.json").write_bytes((data / "filled").read_bytes())
        _archive(data, given.out / "crashed.tar.xz")
        subprocess.run(again, check=True)
        _archive(data, given.out / "clean.tar.xz")


if __name__ == "__main__":
    main()
