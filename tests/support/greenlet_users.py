"""A Locust load test in one process: users share one producer, and a few consumers read.

It prints what it saw as JSON. A test runs it with the bootstrap servers, users and seconds as
arguments. Importing locust makes gevent patch the standard library.
"""

from __future__ import annotations

import gevent.monkey

gevent.monkey.patch_all()

import asyncio  # noqa: E402  # gevent comes first
import itertools  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402
from locust import User, constant, task  # noqa: E402
from locust.env import Environment  # noqa: E402

from raylog.client import EARLIEST, Admin, BlockingProducer, NewTopic, TopicPartition  # noqa: E402

TOPIC = "greenlets"
PARTITIONS = 4
numbers = itertools.count()
sent: set[bytes] = set()
read: set[bytes] = set()
gaps: list[float] = []


class Sender(User):
    """A user that sends a record and waits for its acknowledgement, again and again."""

    wait_time = constant(0.5)
    producer: BlockingProducer[bytes, bytes]
    """The producer shared by all users."""

    @task
    def send(self) -> None:
        """Send one record, which Locust counts as a request."""
        began = time.perf_counter()
        value = b"%d" % next(numbers)
        self.producer.send_and_wait(TOPIC, value, key=value)
        sent.add(value)
        took_ms = (time.perf_counter() - began) * 1000
        self.environment.events.request.fire(
            request_type="send", name=TOPIC, response_time=took_ms, response_length=0
        )


def read_along(bootstrap: str, partition: int) -> None:
    """Consume a partition in a greenlet of its own."""
    with Admin(bootstrap) as admin:
        consumer = admin.consumer()
        consumer.assign({TopicPartition(TOPIC, partition): EARLIEST})
        while True:
            for group in consumer.poll(200):
                read.update(bytes(record.value or b"") for record in group.records)


def tick() -> None:
    """Measure how long other greenlets keep this one waiting."""
    while True:
        began = time.perf_counter()
        gevent.sleep(0.01)
        gaps.append(time.perf_counter() - began)


async def beside() -> str:
    """Run asyncio in a greenlet of its own, while the clients' loops run in theirs."""
    await asyncio.sleep(0.1)
    return "ran"


def main(bootstrap: str, users: int, seconds: float) -> None:
    """Run the load test."""
    environment = Environment(user_classes=[Sender])
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
        Sender.producer = admin.producer()
        other = admin.producer()
        runner = environment.create_local_runner()
        readers = [gevent.spawn(read_along, bootstrap, index) for index in range(PARTITIONS)]
        readers.append(gevent.spawn(tick))
        runner.start(users, spawn_rate=users)
        gevent.sleep(seconds)
        most = runner.user_count
        loop_beside = asyncio.run(beside())
        runner.quit()
        Sender.producer.flush()
        other.send(TOPIC, b"other")
        other.flush()
        with gevent.Timeout(20, False):
            while not sent <= read:
                gevent.sleep(0.05)
        gevent.killall(readers)
    total = environment.stats.total
    report = {
        "users": most,
        "requests": total.num_requests,
        "failures": total.num_failures + len(environment.stats.errors),
        "exceptions": len(runner.exceptions),
        "sent": len(sent),
        "missing": len(sent - read),
        "gap_ms": max(gaps) * 1000,
        "p99_ms": total.get_response_time_percentile(0.99),
        "beside": loop_beside,
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
