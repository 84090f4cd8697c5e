"""Writing events with librdkafka."""

import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from raylog.demo.flights import Event
from raylog.demo.screen import DemoError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

STEP = 4_000
"""Records between two reports of progress."""
DELIVERY_S = 60.0
"""A leader may die meanwhile."""
AHEAD_MAX = 15_000
"""Events that wait to be counted: a slow machine gets a slower stream."""
_LOOK_S = 0.1


class Writer:
    """An idempotent producer for one thread."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 262_144,
                "queue.buffering.max.messages": 100_000,
                "delivery.report.only.error": True,
                "message.timeout.ms": int(DELIVERY_S * 1000),
                "log_level": 0,
                "on_delivery": lambda error, _: self._failures.append(error),
            }
        )

    def write(
        self, topic: str, events: Iterable[Event], reached: Callable[[int], None] | None = None
    ) -> None:
        """Write events and wait until all are acknowledged; raises DemoError if one is not."""
        for number, event in enumerate(events):
            self._send(topic, event)
            if number % STEP == 0:
                self._producer.poll(0)
                if reached is not None:
                    reached(number)
        unsent = self._producer.flush(DELIVERY_S)
        if unsent or self._failures:
            raise DemoError(
                f"{unsent} records unsent, {len(self._failures)} refused: {self._failures[:1]}"
            )

    def _send(self, topic: str, event: Event) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, event.value, event.key, event.partition, timestamp=event.timestamp_ms
                )
            except BufferError:  # the queue is full: let deliveries make room
                self._producer.poll(0.05)
            else:
                return


class DayStream:
    """A thread that writes events day by day, each day when its time has come.

    A day is begun when all of the day before is acknowledged, so that partitions are never more
    than a day apart, and only while less than `AHEAD_MAX` events wait for whoever counts them.
    """

    def __init__(
        self, bootstrap: str, topic: str, days: Sequence[Sequence[Event]], seconds_per_day: float
    ) -> None:
        self.written = 0
        self.counted = 0
        """Said by the reader."""
        self.seconds = 0.0
        """From the first to the last acknowledgement; 0 while it runs."""
        self._bootstrap, self._topic = bootstrap, topic
        self._days = days
        self._seconds_per_day = seconds_per_day
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flights", daemon=True)

    def __enter__(self) -> "DayStream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DELIVERY_S)

    def check(self) -> None:
        """Raise what has ended the thread."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._write()
        except Exception as failure:  # noqa: BLE001  # raised again by `check`
            self._failure = failure

    def _write(self) -> None:
        writer = Writer(self._bootstrap)
        began = monotonic()
        for number, day in enumerate(self._days):
            due = began + number * self._seconds_per_day
            if self._stopping.wait(max(0.0, due - monotonic())):
                return
            while self.written - self.counted > AHEAD_MAX:
                if self._stopping.wait(_LOOK_S):
                    return
            writer.write(self._topic, day)
            self.written += len(day)
        self.seconds = monotonic() - began
