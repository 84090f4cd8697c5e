"""The clients that load a broker, each in a process of its own, and their results."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench import jars

TOOLS = "org.apache.kafka.tools"
CLIENT_TIMEOUT_S = 300.0

_PRODUCED = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, "
    r"([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)
_END_TO_END_MEAN = re.compile(r"Avg latency: ([\d.]+) ms")


class ClientError(Exception):
    """A client failed or printed something unexpected. The text has its last output."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of one producer; sizes in bytes. `transaction_ms` 0 means no transactions.

    `codec` is Kafka's name. librdkafka's producer here compresses nothing.
    """

    acks: str
    linger_ms: int
    batch_bytes: int
    transaction_ms: int = 0
    codec: str = "none"

    @property
    def java(self) -> list[str]:
        """The settings as producer properties of the Java client."""
        return [
            f"acks={self.acks}",
            f"linger.ms={self.linger_ms}",
            f"batch.size={self.batch_bytes}",
            f"compression.type={self.codec}",
            "buffer.memory=67108864",
        ]


@dataclass(frozen=True, slots=True)
class Load:
    """The records that go through a topic; `size` is the size of a value in bytes."""

    topic: str
    partitions: int
    records: int
    size: int

    @property
    def payload_bytes(self) -> int:
        """The total size of the values."""
        return self.records * self.size


def java_produce(address: str, load: Load, settings: ProducerSettings, producers: int = 1) -> float:
    """Records per second by `producers` instances of Kafka's producer-perf side by side."""
    share = load.records // producers
    lasting = ["--transaction-duration-ms", str(settings.transaction_ms)]

    def one(_: int) -> float:
        said = _java(
            f"{TOOLS}.ProducerPerformance",
            *("--bootstrap-server", address, "--topic", load.topic, "--throughput", "-1"),
            *("--num-records", str(share), "--record-size", str(load.size)),
            *("--command-property", *settings.java),
            *(lasting if settings.transaction_ms else ()),
        )
        totals = _PRODUCED.findall(said)
        if not totals or int(totals[-1][0]) != share:
            raise ClientError(f"producer-perf gave no total of {share} records:\n{said[-2000:]}")
        return float(totals[-1][1])

    with ThreadPoolExecutor(producers) as pool:
        return sum(pool.map(one, range(producers)))


def java_consume(address: str, load: Load) -> float:
    """Records per second read from the beginning with assigned partitions."""
    said = _java("AssignedConsumer", address, load.topic, str(load.partitions), str(load.records))
    return _rate(said, load)


def java_consume_in_group(address: str, load: Load, group: str) -> float:
    """Records per second by Kafka's consumer-perf, including the time to join its group."""
    said = _java(
        f"{TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", address, "--topic", load.topic, "--group", group),
        *("--num-records", str(load.records), "--timeout", "20000"),
    )
    rows = [line.split(", ") for line in said.splitlines() if line.count(", ") > 6]
    if len(rows) < 2:
        raise ClientError(f"consumer-perf gave no table:\n{said[-2000:]}")
    named = dict(zip(rows[0], rows[-1], strict=True))
    return float(named["nMsg.sec"])


def java_end_to_end(address: str, topic: str, records: int, acks: str) -> float:
    """Mean ms from send to receipt by Kafka's own tool, with one 100-byte record at a time.

    After printing its result, the tool commits offsets, which fails on a broker without groups.
    Only the result counts.
    """
    said = _java(
        f"{TOOLS}.EndToEndLatency",
        *("--bootstrap-server", address, "--topic", topic, "--num-records", str(records)),
        *("--producer-acks", acks, "--record-size", "100"),
        accept_failure=True,
    )
    found = _END_TO_END_MEAN.search(said)
    if found is None:
        raise ClientError(f"the end-to-end tool gave no mean:\n{said[-2000:]}")
    return float(found[1])


def java_paced(
    address: str, topic: str, rate: int, seconds: int, size: int, acks: str
) -> dict[str, float]:
    """Latency in ms at `rate` records per second, after 2 s of warm-up.

    mean, p50, p99, p999, max; with the prefix `acknowledged_` until the acknowledgement.
    """
    said = _java(
        "PacedLatency",
        *(address, topic, str(rate), str(seconds), "2", str(size), acks),
    )
    return {key: float(value) for key, value in _last_json(said).items()}


def librdkafka_produce(address: str, load: Load, settings: ProducerSettings) -> float:
    """Records per second produced by confluent-kafka."""
    said = _python(
        "produce",
        *(address, load.topic, str(load.partitions), str(load.records)),
        *(f"--size={load.size}", f"--acks={settings.acks}"),
        *(f"--linger-ms={settings.linger_ms}", f"--batch-bytes={settings.batch_bytes}"),
    )
    return _rate(said, load)


def librdkafka_consume(address: str, load: Load) -> float:
    """Records per second read by confluent-kafka with assigned partitions."""
    said = _python("consume", address, load.topic, str(load.partitions), str(load.records))
    return _rate(said, load)


def _rate(said: str, load: Load) -> float:
    answer = _last_json(said)
    if answer["records"] < load.records:
        raise ClientError(f"{answer['records']} of {load.records} records went through")
    return float(answer["records"]) / float(answer["seconds"])


def _java(main: str, *arguments: str, accept_failure: bool = False) -> str:
    return _run(jars.fetch().command(main, *arguments), accept_failure=accept_failure)


def _python(*arguments: str) -> str:
    return _run([sys.executable, "-m", "bench.librdkafka", *arguments])


def _run(command: Sequence[str], *, accept_failure: bool = False) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as failure:
        raise ClientError(f"no end after {CLIENT_TIMEOUT_S:.0f} s: {command[-12:]}") from failure
    if done.returncode != 0 and not accept_failure:
        raise ClientError(f"{command[-12:]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _last_json(said: str) -> dict[str, float]:
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        raise ClientError(f"no result:\n{said[-2000:]}")
    answer: dict[str, float] = json.loads(lines[-1])
    return answer
