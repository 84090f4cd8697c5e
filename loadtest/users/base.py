"""The base class of all users. Importing it imports locust, which patches for gevent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

import gevent
from locust import User, task
from locust.exception import StopUser
from locust.user.task import LOCUST_STATE_STOPPING

from raylog.client.errors import ClientError
from raylog.client.producer.reports import describe
from raylog.loadtest.error_texts import count_error, is_logged
from raylog.loadtest.local import Local
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""The longest sleep of a user. The factor may have changed, or the run may be over."""
RETRY_S = 1.0
"""The pause after a failure that makes a user start again."""
STOP_TIMEOUT_S = 30.0
"""Records that are not acknowledged this long after their user stopped count as unanswered."""
_US_PER_S = 1_000_000
ERRORS = (KafkaError, ClientError, OSError)
"""What clients raise when a cluster does not do what it is asked."""

Entry = TypeVar("Entry")


class LoadUser(User, Generic[Entry]):
    """A Locust user that works in one task until it is stopped.

    `begin` creates its client, `step` does a part of its work and returns within about a second,
    `finish` does the last part, and `end` closes the client. An exception of `ERRORS` counts as a
    failure of `operation`, and the user starts again. Any other exception is a bug and ends it.
    """

    abstract = True
    local: ClassVar[Local]
    entry: Entry
    number: ClassVar[int]
    """The number of its entry in the scenario, from 0."""
    operation: ClassVar[str]

    def on_start(self) -> None:
        """Take a number among the users of this entry."""
        self.seat = self.local.take_seat(self.number)

    def on_stop(self) -> None:
        """Close the client."""
        self._guarded(self.end)
        self.local.leave_seat(self.number, self.seat)

    @task
    def work(self) -> None:
        """Work until the user is stopped."""
        while not self.is_stopping:
            if self._guarded(self.begin):
                self._go_on()
            if not self.is_stopping:
                self._guarded(self.end)
                self.sleep(RETRY_S)
        raise StopUser

    def _go_on(self) -> None:
        while not self.is_stopping:
            if not self._guarded(self.step):
                return
        self._guarded(self.finish)

    def begin(self) -> None:
        """Create the client."""
        raise NotImplementedError

    def step(self) -> None:
        """Do a part of the work."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do the rest of the work, before the user stops. The client works."""

    def end(self) -> None:
        """Close the client, if there is one. It may be called again."""
        raise NotImplementedError

    @property
    def is_stopping(self) -> bool:
        """Whether Locust wants this user to finish."""
        return self._state == LOCUST_STATE_STOPPING

    def sleep(self, seconds: float) -> None:
        """Let others run. A late wake-up shows that the process does not keep up."""
        clock = self.local.clock
        sleep_us = int(seconds * _US_PER_S)
        due_us = clock.now_us() + sleep_us
        gevent.sleep(seconds)
        self.local.generator.woke(sleep_us, max(0, clock.now_us() - due_us))

    def _guarded(self, part: Callable[[], None]) -> bool:
        """Run a part of the work. Returns False if it failed, and counts that where it began."""
        began_us = self.local.clock.now_us()
        try:
            part()
        except ERRORS as error:
            self._warn(describe(error))
            self.local.recorder.failed(self.operation, describe(error), began_us)
            return False
        return True

    def _warn(self, text: str) -> None:
        """Log an error, unless many users have met it."""
        text = f"{type(self).__name__}: {text}"
        times = count_error(self.local.warnings, text)
        if is_logged(times):
            log.warning("%s%s", text, "" if times == 1 else f" ({times:,} times by now)")
