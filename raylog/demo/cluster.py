"""Starts a cluster in a temporary directory, and creates topics."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from raylog.cluster_record import read_record
from raylog.demo.screen import DemoError, step

CLI_TIMEOUT_S = 180.0
ADMIN_S = 60.0
"""The timeout for creating a topic."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    data: Path
    bootstrap: str


@contextmanager
def local_cluster(say: Console, brokers: int) -> Iterator[Callable[[], Cluster]]:
    """Run brokers on Ray in a temporary directory, which is removed at the end.

    They start in the background. The yielded function waits for them.
    """
    with TemporaryDirectory(prefix="raylog-demo-") as folder, ThreadPoolExecutor(1) as pool:
        data = Path(folder) / "data"
        started = pool.submit(_start, data, brokers)

        def ready() -> Cluster:
            with step(say, f"{brokers} broker{'s' if brokers > 1 else ''} on Ray"):
                cluster = started.result()
            say.print(f"they listen on {cluster.bootstrap}", highlight=False)
            return cluster

        try:
            yield ready
        finally:
            before = ignore_interrupts()
            if started.exception() is None:
                with step(say, "cluster down"):
                    _raylog("down", "--data", str(data))
            signal.signal(signal.SIGINT, before)


def end_on_signals() -> None:
    """Turn SIGINT and SIGTERM into exceptions, so that everything is cleaned up."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def ignore_interrupts() -> "signal._HANDLER":
    """Ignore interrupts during the cleanup. Returns the previous handler."""
    return signal.signal(signal.SIGINT, signal.SIG_IGN)


def _start(data: Path, brokers: int) -> Cluster:
    _raylog("up", "--detach", "--brokers", str(brokers), "--port", "0", "--data", str(data))
    record = read_record(data / "run")
    assert record is not None, "raylog up succeeded"
    return Cluster(data, ",".join(record.bootstrap))


def _raylog(*arguments: str) -> None:
    command = [sys.executable, "-m", "raylog.cli", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and our own arguments
            command, capture_output=True, text=True, timeout=CLI_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as failure:
        raise DemoError(f"raylog {arguments[0]} took more than {CLI_TIMEOUT_S:.0f} s") from failure
    if done.returncode != 0:
        raise DemoError(f"raylog {arguments[0]} failed:\n{done.stderr or done.stdout}")


def create_topic(
    bootstrap: str, topic: str, partitions: int, copies: int, config: Mapping[str, str]
) -> None:
    """Create a topic. Raises DemoError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    new = NewTopic(topic, partitions, copies, config=dict(config))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        admin.create_topics([new], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
    except (KafkaException, TimeoutError) as failure:
        reason = str(failure) or "no answer in time"
        raise DemoError(f"cannot create a topic at {bootstrap}: {reason}") from failure


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    """Return the leader of a partition; -1 while there is none."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return int(admin.list_topics(topic, timeout=ADMIN_S).topics[topic].partitions[partition].leader)


@contextmanager
def temporary_topic(bootstrap: str, partitions: int) -> Iterator[str]:
    """Yield the name of a topic that keeps old timestamps. Deletes it at the end."""
    from confluent_kafka.admin import AdminClient

    topic = f"flights-{os.getpid()}-{os.urandom(3).hex()}"
    create_topic(bootstrap, topic, partitions, 1, {"retention.ms": "-1"})
    try:
        yield topic
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([topic])[topic].result(ADMIN_S)


def check_reachable(bootstrap: str) -> None:
    """Raise DemoError unless a server listens there."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    if not host or not port.isdecimal():
        raise DemoError(f"{bootstrap} is no address: give host:port")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as failure:
        raise DemoError(f"nothing answers at {bootstrap}: {failure.strerror}") from failure
