"""A future for the result of one record, for threads that may wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from raylog.client.interceptors import RecordMetadata
from raylog.client.producer.batch import Listener

if TYPE_CHECKING:
    from raylog.client.background import BackgroundLoop

_PENDING, _FINISHED = "PENDING", "FINISHED"
_meeting = threading.Lock()
"""Held briefly, so that a record's result and its first waiter cannot miss each other."""


class RecordFuture(Future[RecordMetadata]):
    """The metadata of one record, or its failure. It cannot be cancelled: the record may be sent.

    Most futures of a producer are done before anybody looks at them. The condition, which only
    waiters need, is most of a future's cost, so it is created for the first waiter.
    """

    # `Future` keeps its condition in an attribute; here that is a property.
    _state: str
    _result: RecordMetadata | None
    _exception: BaseException | None

    def __init__(
        self,
        on_delivery: Listener | None = None,
        thread: Callable[[], BackgroundLoop | None] = lambda: None,
    ) -> None:
        """`thread` returns the producer's thread, which must not wait for its own work."""
        self._thread = thread
        self._made: threading.Condition | None = None
        self._state = _PENDING
        self._result = None
        self._exception = None
        self._waiters: Any = ()
        self._done_callbacks: Any = ()
        self._on_delivery = on_delivery

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # created on demand
        made = self._made
        if made is None:
            with _meeting:
                made = self._made
                if made is None:
                    self._waiters, self._done_callbacks = [], []
                    made = self._made = threading.Condition()
        return made

    def cancel(self) -> bool:
        """Return False: a record cannot be recalled."""
        return False

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the metadata and return it, or raise the failure."""
        if self._state == _FINISHED and self._exception is None:
            assert self._result is not None, "a record that did not fail has metadata"
            return self._result
        self._require_another_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the result; return the failure, or None."""
        self._require_another_thread()
        return super().exception(timeout)

    def _require_another_thread(self) -> None:
        """Raise ClientError in the producer's thread, unless the future is done."""
        background = self._thread()
        if background is not None and self._state != _FINISHED:
            background.require_another_thread()

    def ended(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """Set the record's result."""
        with _meeting:
            is_awaited = self._made is not None
            if not is_awaited:
                self._result = None if failure is not None else metadata
                self._exception = failure
                self._state = _FINISHED
        if is_awaited and failure is None:
            self.set_result(metadata)
        elif is_awaited:
            self.set_exception(failure)
        if self._on_delivery is not None:
            self._on_delivery(metadata, failure)
