"""Writes events with librdkafka."""

import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from raylog.demo.flights import Event
from raylog.demo.screen import DemoError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

STEP = 4_000
"""The number of records between two progress reports."""
DELIVERY_S = 60.0
"""The delivery timeout, long enough for a leader to die in between."""
AHEAD_MAX = 15_000
"""The maximum of written events that are not counted yet; it slows the stream on slow machines."""
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
        """Write events and wait for all acknowledgements. Raises DemoError if one fails."""
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
            except BufferError:  # the queue is full: wait for deliveries
                self._producer.poll(0.05)
            else:
                return


class DayStream:
    """A thread that writes events day by day, each day when it is due.

    A day begins when the previous day is acknowledged, so that partitions never differ by more than
    a day, and only while fewer than `AHEAD_MAX` events are not counted yet.
    """

    def __init__(
        self, bootstrap: str, topic: str, days: Sequence[Sequence[Event]], seconds_per_day: float
    ) -> None:
        self.written = 0
        self.counted = 0
        """Set by the reader."""
        self.seconds = 0.0
        """Seconds from the first to the last acknowledgement; 0 while it runs."""
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
        """Raise the exception that ended the thread."""
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
