"""Users that write in transactions."""

from __future__ import annotations

import random

from raylog.client import AbortRequired, Producer, ProducerUnusable
from raylog.client.config import client_and_producer
from raylog.client.producer.reports import describe
from raylog.loadtest.ledger import Fate
from raylog.loadtest.operations import ABORT, PRODUCE, TRANSACTION
from raylog.loadtest.scenario import TransactionalUsers
from raylog.loadtest.sending import Sender
from raylog.loadtest.users.base import ERRORS, STOP_TIMEOUT_S, LoadUser

_COMMITS_MAX = 5
"""How often a commit is tried whose outcome is not known."""


class TransactionalUser(LoadUser[TransactionalUsers]):
    """Sends records as they are due, some of them in each transaction, and aborts some on purpose.

    "transaction" is the time from the intended time of a transaction's last record to the end of
    the commit, "abort" that to the end of the abort.
    """

    abstract = True
    operation = TRANSACTION
    _producer: Producer[bytes, bytes] | None = None
    _sender: Sender | None = None

    def on_start(self) -> None:
        """The rate counts from here."""
        super().on_start()
        self._pace = self.pace_of(self.entry.rate, self.entry.count)
        self._chance = random.Random(self.local.run_number + self.seat)  # noqa: S311 — no secret
        self._sent = 0
        """Records in the open transaction."""

    def begin(self) -> None:
        """A producer of its own; what another left open under its name is aborted."""
        name = self.local.transactional_id(self.number, self.seat)
        settings = self.local.client_settings({"transactional.id": name, **self.entry.client})
        _, own = client_and_producer(settings, {}, None)
        self._producer = Producer(settings)
        self._producer.init_transactions()
        self._sender = Sender(self.local, self.entry, self._producer, batch_bytes=own.batch_bytes)
        self._sent = 0

    def step(self) -> None:
        """Send what is due; end the transaction when it has its records."""
        producer, sender = self._producer, self._sender
        assert producer is not None, "begin comes before step"
        assert sender is not None, "begin comes before step"
        now_us, room = self.local.clock.now_us(), self.entry.records - self._sent
        due = self._pace.due(now_us, self.local.factor, room)
        if due:
            if not self._sent:
                producer.begin_transaction()
                sender.begin_transaction()
            self._sent += len(due)
            try:
                sender.send(due)
            except AbortRequired as error:
                self._failed(producer, sender, error)
                return
        if self._sent == self.entry.records:
            self._end_transaction(producer, sender, due[-1])
        else:
            self.await_due(self._pace)

    def end(self) -> None:
        """Abort what is open."""
        producer, self._producer = self._producer, None
        sender, self._sender = self._sender, None
        fate = Fate.UNANSWERED
        try:
            if producer is not None:
                if producer.has_open_transaction:
                    producer.abort_transaction()
                    fate = Fate.ABORTED
                producer.close(STOP_TIMEOUT_S)
        finally:
            if sender is not None:
                sender.give_up(fate)

    def on_stop(self) -> None:
        """What was due and not even sent was intended all the same."""
        overdue = self._pace.overdue(self.local.clock.now_us(), self.local.factor)
        self.local.recorder.intended(PRODUCE, overdue)
        super().on_stop()

    def _end_transaction(
        self, producer: Producer[bytes, bytes], sender: Sender, intended_us: int
    ) -> None:
        recorder, clock = self.local.recorder, self.local.clock
        is_aborted = self._chance.random() < self.entry.aborted
        operation = ABORT if is_aborted else TRANSACTION
        recorder.intended(operation)
        try:
            if is_aborted:
                producer.abort_transaction()
            else:
                self._commit(producer)
        except AbortRequired as error:
            self._failed(producer, sender, error)
            return
        self._sent = 0
        sender.end_transaction(Fate.ABORTED if is_aborted else Fate.ACKNOWLEDGED)
        recorder.done(operation, intended_us, clock.now_us())

    def _failed(
        self, producer: Producer[bytes, bytes], sender: Sender, error: AbortRequired
    ) -> None:
        """The transaction cannot be committed."""
        self.local.recorder.failed(TRANSACTION, describe(error))
        self._sent = 0
        producer.abort_transaction()
        sender.end_transaction(Fate.ABORTED)

    @staticmethod
    def _commit(producer: Producer[bytes, bytes]) -> None:
        """Commit; one whose outcome is not known is tried again."""
        for _ in range(_COMMITS_MAX):
            try:
                producer.commit_transaction()
            except (AbortRequired, ProducerUnusable):
                raise
            except ERRORS:
                continue
            return
        producer.commit_transaction()
