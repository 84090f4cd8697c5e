"""The base class of users that make requests at a rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from gevent import GreenletExit

from raylog.client.producer.reports import describe
from raylog.loadtest.pacing import Pace
from raylog.loadtest.users.base import ERRORS, LOOK_S, LoadUser

WAKE_S = 0.001
"""A user makes all due requests and then sleeps at least this long."""
LATE_S = 1.0
"""A user that is less late than this at the end of the run makes its last requests. Those of a user
that is later have failed."""
UNSENT = "was not sent by the end of the run"
UNANSWERED = "was not answered before its user was stopped"
_UNSENT_AT_ONCE = 10_000
_US_PER_S = 1_000_000


class HasRate(Protocol):
    """An entry of a scenario with a rate."""

    @property
    def count(self) -> int:
        """The number of users of the entry."""

    @property
    def rate(self) -> float:
        """Requests/s of all of them together."""


Entry = TypeVar("Entry", bound=HasRate)


class PacedUser(LoadUser[Entry]):
    """Makes requests when they are due, however long answers take.

    Everything due by the end of the run is performed or counted as failed.
    """

    abstract = True

    def on_start(self) -> None:
        """Choose a phase, so that users of one entry do not all send at the same moment."""
        super().on_start()
        rate, count = self.entry.rate, self.entry.count
        self._pace = Pace(rate / count, self.local.load, (self.seat % count) / count)

    @property
    def room(self) -> int:
        """The most requests to make at once."""
        return 1

    def perform(self, intended_us: list[int]) -> None:
        """Make due requests."""
        raise NotImplementedError

    def fail(self, intended_us: list[int], error: str) -> None:
        """Count requests that were not made as failed."""
        self.local.recorder.failed_many(self.operation, error, intended_us)

    def request(self, operation: str, intended_us: int, make: Callable[[], None]) -> None:
        """Make a request that is complete when `make` returns."""
        recorder = self.local.recorder
        try:
            make()
        except ERRORS as error:
            recorder.failed(operation, describe(error), intended_us)
        except GreenletExit:
            recorder.failed(operation, UNANSWERED, intended_us)
            raise
        else:
            recorder.done(operation, intended_us, self.local.clock.now_us())

    def step(self) -> None:
        """Make the due requests, then wait for more."""
        room = self.room
        due = self._pace.due(self.local.clock.now_us(), room)
        if due:
            self.perform(due)
        if len(due) < room:
            self._await_due()

    def finish(self) -> None:
        """Make the last requests, unless this user was delayed."""
        now_us, next_us = self.local.clock.now_us(), self._pace.next_us()
        if next_us is None or now_us - next_us > LATE_S * _US_PER_S:
            return
        while due := self._pace.due(now_us, self.room):
            self.perform(due)

    def on_stop(self) -> None:
        """Count what was due and not sent as failed."""
        now_us = self.local.clock.now_us()
        while due := self._pace.due(now_us, _UNSENT_AT_ONCE):
            self.fail(due, UNSENT)
        super().on_stop()

    def _await_due(self) -> None:
        """Sleep until the next request is due, at most `LOOK_S`."""
        next_us = self._pace.next_us()
        wait_s = LOOK_S
        if next_us is not None:
            wait_s = min((next_us - self.local.clock.now_us()) / _US_PER_S, LOOK_S)
        self.sleep(max(wait_s, WAKE_S))
