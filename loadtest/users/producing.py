"""Users that write."""

from __future__ import annotations

from raylog.client import Producer
from raylog.client.config import client_and_producer
from raylog.loadtest.operations import PRODUCE
from raylog.loadtest.scenario import ProducerUsers
from raylog.loadtest.sending import Sender
from raylog.loadtest.users.base import STOP_TIMEOUT_S, LoadUser

AT_ONCE_MAX = 10_000
"""So many overdue records are made ready together."""


class ProducerUser(LoadUser[ProducerUsers]):
    """Sends at a rate, whatever the answers take."""

    abstract = True
    operation = PRODUCE
    _producer: Producer[bytes, bytes] | None = None
    _sender: Sender | None = None

    def on_start(self) -> None:
        """The rate counts from here."""
        super().on_start()
        self._pace = self.pace_of(self.entry.rate, self.entry.count)

    def begin(self) -> None:
        """A producer of its own."""
        settings = self.local.client_settings(self.entry.client)
        _, own = client_and_producer(settings, {}, None)
        self._producer = Producer(settings)
        self._sender = Sender(
            self.local,
            self.entry,
            self._producer,
            batch_bytes=own.batch_bytes,
            is_answered=own.acks != 0,
        )

    def step(self) -> None:
        """Send what is due, then wait for more."""
        assert self._sender is not None, "begin comes before step"
        due = self._pace.due(self.local.clock.now_us(), self.local.factor, AT_ONCE_MAX)
        if due:
            self._sender.send(due)
        if len(due) < AT_ONCE_MAX:
            self.await_due(self._pace)

    def end(self) -> None:
        """Wait for what is in flight."""
        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                producer.close(STOP_TIMEOUT_S)
        finally:
            if self._sender is not None:
                self._sender.give_up()

    def on_stop(self) -> None:
        """What was due and not even sent was intended all the same."""
        overdue = self._pace.overdue(self.local.clock.now_us(), self.local.factor)
        self.local.recorder.intended(PRODUCE, overdue)
        super().on_stop()
