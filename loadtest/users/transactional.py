"""Users that write in transactions."""

from __future__ import annotations

import random

from gevent import GreenletExit

from raylog.client import AbortRequired, Producer, ProducerUnusable
from raylog.client.producer.reports import describe
from raylog.client.setting_parsing import client_and_producer
from raylog.loadtest.ledger import Fate
from raylog.loadtest.operations import ABORT, PRODUCE, TRANSACTION
from raylog.loadtest.scenario import TransactionalUsers
from raylog.loadtest.sending import Sender
from raylog.loadtest.users.base import ERRORS, STOP_TIMEOUT_S
from raylog.loadtest.users.paced import UNANSWERED, PacedUser

_COMMITS_MAX = 5
"""The most attempts of a commit whose outcome is unknown."""
_FLUSH_S = STOP_TIMEOUT_S / 2
"""How long to flush the open transaction when the user stops."""


class TransactionalUser(PacedUser[TransactionalUsers]):
    """Sends records when they are due, a fixed number per transaction, and aborts some on purpose.

    "transaction" is the time from the intended time of a transaction's last record to the end of
    the commit, "abort" the same to the end of the abort.
    """

    abstract = True
    operation = TRANSACTION
    _producer: Producer[bytes, bytes] | None = None
    _sender: Sender | None = None

    def on_start(self) -> None:
        """Start without records."""
        super().on_start()
        self._chance = random.Random(self.local.run_number + self.seat)  # noqa: S311 — no secret
        self._sent = 0
        """Records in the open transaction."""

    def begin(self) -> None:
        """Create a producer. It aborts what another one left open under its name."""
        name = self.local.transactional_id(self.number, self.seat)
        settings = self.local.client_settings({"transactional.id": name, **self.entry.client})
        _, own = client_and_producer(settings, {}, None)
        self._producer = Producer(settings)
        self._producer.init_transactions()
        self._sender = Sender(self.local, self.entry, self._producer, batch_bytes=own.batch_bytes)
        self._sent = 0

    @property
    def room(self) -> int:
        """The records still missing in the open transaction."""
        return self.entry.records - self._sent

    def perform(self, intended_us: list[int]) -> None:
        """Send records. End the transaction when it has all of them."""
        producer, sender = self._producer, self._sender
        assert producer is not None, "begin comes before step"
        assert sender is not None, "begin comes before step"
        if not self._sent:
            producer.begin_transaction()
            sender.begin_transaction()
        self._sent += len(intended_us)
        try:
            sender.send(intended_us)
            if self._sent == self.entry.records:
                self._end_transaction(producer, sender, intended_us[-1])
        except AbortRequired as error:
            self.local.recorder.failed(TRANSACTION, describe(error), intended_us[-1])
            self._sent = 0
            producer.abort_transaction()
            sender.end_transaction(Fate.ABORTED)

    def fail(self, intended_us: list[int], error: str) -> None:
        """Count records as failed. They are in no transaction."""
        self.local.recorder.failed_many(PRODUCE, error, intended_us)

    def end(self) -> None:
        """Abort the open transaction after sending its records."""
        producer, self._producer = self._producer, None
        sender, self._sender = self._sender, None
        fate = Fate.UNANSWERED
        try:
            if producer is not None:
                if producer.has_open_transaction:
                    self._guarded(lambda: producer.flush(_FLUSH_S))
                    producer.abort_transaction()
                    fate = Fate.ABORTED
                producer.close(STOP_TIMEOUT_S - _FLUSH_S)
        finally:
            if sender is not None:
                sender.give_up(fate)

    def _end_transaction(
        self, producer: Producer[bytes, bytes], sender: Sender, intended_us: int
    ) -> None:
        recorder, clock = self.local.recorder, self.local.clock
        is_aborted = self._chance.random() < self.entry.aborted
        operation = ABORT if is_aborted else TRANSACTION
        try:
            if is_aborted:
                producer.flush()  # an abort alone drops unsent records
                producer.abort_transaction()
            else:
                self._commit(producer)
        except GreenletExit:
            recorder.failed(operation, UNANSWERED, intended_us)
            raise
        self._sent = 0
        sender.end_transaction(Fate.ABORTED if is_aborted else Fate.ACKNOWLEDGED)
        recorder.done(operation, intended_us, clock.now_us())

    @staticmethod
    def _commit(producer: Producer[bytes, bytes]) -> None:
        """Commit. Retries while the outcome is unknown."""
        for _ in range(_COMMITS_MAX):
            try:
                producer.commit_transaction()
            except (AbortRequired, ProducerUnusable):
                raise
            except ERRORS:
                continue
            return
        producer.commit_transaction()
