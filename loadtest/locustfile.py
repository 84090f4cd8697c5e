"""Locust users that load a broker through librdkafka.

`locust -f loadtest/locustfile.py --headless -u 12 -r 4 -t 30s -H 127.0.0.1:9092`

The host is a list of bootstrap servers. Sends are paced, times are in ms, and a wrong answer (a
record lost, repeated, reordered or changed) counts as a failure.
"""

import itertools
import os
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import gevent
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from locust import User, constant_pacing, events, task
from locust.env import Environment

from raylog.loadtest.payload import BrokenPayloadError, Payload, SequenceCheck, open_payload

T = TypeVar("T")

PARTITIONS = 6
VALUE_BYTES = 512
SENDS_PER_SECOND = 50
FLUSH_TIMEOUT_S = 30.0
REPORT_INTERVAL_S = 0.002
"""How exact the time to an acknowledgement is."""

TOPIC = f"loadtest-{os.getpid()}"

_LEADER_UNKNOWN = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Answers of the first moments of a topic: the same is asked again."""

_senders = itertools.count()
_readers = itertools.count()


def create_topic(environment: Environment, **_: object) -> None:
    """Before any user starts."""
    admin = AdminClient({"bootstrap.servers": environment.host or ""})
    new = NewTopic(TOPIC, PARTITIONS, -1)
    _in_thread(lambda: admin.create_topics([new])[TOPIC].result(FLUSH_TIMEOUT_S))


def delete_topic(environment: Environment, **_: object) -> None:
    """After the last user has stopped."""
    admin = AdminClient({"bootstrap.servers": environment.host or ""})
    _in_thread(lambda: admin.delete_topics([TOPIC])[TOPIC].result(FLUSH_TIMEOUT_S))


events.test_start.add_listener(create_topic)  # type: ignore[no-untyped-call]  # Locust's hooks
events.test_stop.add_listener(delete_topic)  # type: ignore[no-untyped-call]  # Locust's hooks


def _in_thread(function: Callable[[], T]) -> T:
    """Run a blocking call of librdkafka without holding up the other users."""
    result: T = gevent.get_hub().threadpool.apply(function)
    return result


class KafkaUser(User):
    """Reports to Locust under one name."""

    abstract = True

    def report(
        self, kind: str, name: str, milliseconds: float, size: int, failure: Exception | None
    ) -> None:
        """One request, good or bad."""
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=milliseconds,
            response_length=size,
            exception=failure,
            context={},
        )


class PacedProducer(KafkaUser):
    """Sends at a steady rate with idempotence on; reports the time to the acknowledgement."""

    weight = 3
    wait_time = constant_pacing(1 / SENDS_PER_SECOND)

    def on_start(self) -> None:
        """A producer and a partition of its own, so that order can be told."""
        self.sender = next(_senders)
        self.partition = self.sender % PARTITIONS
        self.sequence = 0
        self.producer = Producer(
            {
                "bootstrap.servers": self.host,
                "enable.idempotence": True,
                "linger.ms": 1,
                "client.id": f"loadtest-{self.sender}",
            }
        )
        self.reports = gevent.spawn(self._take_reports)

    def _take_reports(self) -> None:
        """Hand on acknowledgements as they come, not only at the next send."""
        while True:
            self.producer.poll(0)
            gevent.sleep(REPORT_INTERVAL_S)

    def on_stop(self) -> None:
        """What was sent is to be acknowledged before the test ends."""
        self.reports.kill()
        unsent = _in_thread(lambda: self.producer.flush(FLUSH_TIMEOUT_S))
        if unsent:
            failure = BrokenPayloadError(f"{unsent} records were never acknowledged")
            self.report("produce", "flush", 0, 0, failure)

    @task
    def send(self) -> None:
        """One record."""
        began = perf_counter()
        payload = Payload(self.sender, self.sequence, began)
        self.sequence += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            failure = None if error is None else RuntimeError(error.str())
            taken = (perf_counter() - began) * 1000
            self.report("produce", "acks=all", taken, VALUE_BYTES, failure)

        self.producer.produce(
            TOPIC, payload.seal(VALUE_BYTES), partition=self.partition, on_delivery=delivered
        )


class TailReader(KafkaUser):
    """Reads one partition as it grows; reports end-to-end time, checks every record."""

    weight = 1
    wait_time = constant_pacing(0.005)

    def on_start(self) -> None:
        """From the beginning of one partition."""
        self.check = SequenceCheck()
        self.consumer = Consumer(
            {
                "bootstrap.servers": self.host,
                "group.id": "loadtest",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        self.consumer.assign([TopicPartition(TOPIC, next(_readers) % PARTITIONS, 0)])
        self.known_from = perf_counter()

    def on_stop(self) -> None:
        """Let go of the connections."""
        _in_thread(self.consumer.close)

    @task
    def read(self) -> None:
        """Whatever has arrived."""
        for message in self.consumer.consume(500, timeout=0):
            error = message.error()
            if error is not None:
                self.report("consume", "end-to-end", 0, 0, RuntimeError(error.str()))
            else:
                self._examine(message.value())

    def _examine(self, value: bytes | None) -> None:
        """A record older than this reader says nothing about latency, but must be in order."""
        try:
            payload = open_payload(value)
            self.check.take(payload)
        except BrokenPayloadError as failure:
            self.report("consume", "end-to-end", 0, 0, failure)
            return
        if payload.sent_at >= self.known_from:
            taken = (perf_counter() - payload.sent_at) * 1000
            self.report("consume", "end-to-end", taken, VALUE_BYTES, None)


class OffsetAsker(KafkaUser):
    """Asks for both ends of partitions; they must never move back."""

    weight = 1
    wait_time = constant_pacing(0.1)

    def on_start(self) -> None:
        """A consumer that never fetches."""
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.asked = itertools.cycle(range(PARTITIONS))
        self.consumer = Consumer({"bootstrap.servers": self.host, "group.id": "loadtest"})

    def on_stop(self) -> None:
        """Let go of the connections."""
        _in_thread(self.consumer.close)

    @task
    def ask(self) -> None:
        """The next partition's ends."""
        partition = next(self.asked)
        began = perf_counter()
        answer = _in_thread(lambda: self._ends(partition))
        if isinstance(answer, KafkaError):
            if answer.code() not in _LEADER_UNKNOWN:
                self.report("offsets", "both ends", 0, 0, RuntimeError(answer.str()))
            return
        low, high = answer
        failure = None
        if low != 0 or high < self.ends[partition]:
            failure = BrokenPayloadError(f"ends {low}, {high} after {self.ends[partition]}")
        self.ends[partition] = max(high, self.ends[partition])
        self.report("offsets", "both ends", (perf_counter() - began) * 1000, 0, failure)

    def _ends(self, partition: int) -> tuple[int, int] | KafkaError:
        """Both ends, or why not: an exception in a thread would be printed by gevent."""
        asked = TopicPartition(TOPIC, partition)
        try:
            return self.consumer.get_watermark_offsets(asked, timeout=FLUSH_TIMEOUT_S)
        except KafkaException as refusal:
            error: KafkaError = refusal.args[0]
            return error
