"""Users that write."""

from __future__ import annotations

from raylog.client import Producer
from raylog.client.setting_parsing import client_and_producer
from raylog.loadtest.operations import PRODUCE
from raylog.loadtest.scenario import ProducerUsers
from raylog.loadtest.sending import Sender
from raylog.loadtest.users.base import STOP_TIMEOUT_S
from raylog.loadtest.users.paced import PacedUser

AT_ONCE_MAX = 10_000
"""The most overdue records to prepare together."""


class ProducerUser(PacedUser[ProducerUsers]):
    """Sends at a fixed rate, however long answers take."""

    abstract = True
    operation = PRODUCE
    _producer: Producer[bytes, bytes] | None = None
    _sender: Sender | None = None

    @property
    def room(self) -> int:
        """The most records to prepare together."""
        return AT_ONCE_MAX

    def begin(self) -> None:
        """Create a producer."""
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

    def perform(self, intended_us: list[int]) -> None:
        """Send records."""
        assert self._sender is not None, "begin comes before step"
        self._sender.send(intended_us)

    def end(self) -> None:
        """Wait for records in flight."""
        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                producer.close(STOP_TIMEOUT_S)
        finally:
            if self._sender is not None:
                self._sender.give_up()
