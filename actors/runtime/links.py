"""The common part of links in every runtime, and links within one process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from raylog.actors.runtime.base import (
    Actor,
    Buffer,
    FailureHandler,
    Link,
    LinkRequest,
    PeerLost,
    ReplyHandler,
)
from raylog.wire.errors import KafkaError, UnknownServerError

log = logging.getLogger(__name__)


class _Numbered(Protocol):
    number: int


LinkT = TypeVar("LinkT", bound=_Numbered)
LINK_NUMBERS = itertools.count(1)
"""Unique numbers for links to the actors of one process, of all kinds."""


def joined(payload: Sequence[Buffer]) -> memoryview:
    """Return the payload as one buffer, without a copy if it is one already."""
    if len(payload) == 1:
        return memoryview(payload[0])
    return memoryview(bytearray(b"".join(payload)))


def ask_over(
    link: Link, kind: str, header: Any = None, payload: Sequence[Buffer] = ()
) -> asyncio.Future[Any]:
    """Send a request; the future holds the answer's header. The method `ask` of every link."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(answer: Any, _payload: memoryview) -> None:
        if not future.done():
            future.set_result(answer)

    def failed(failure: Exception) -> None:
        if not future.done():
            future.set_exception(failure)

    link.request(kind, header, payload, answered, failed)
    return future


def tell(callback: Callable[..., None], *what: Any) -> None:
    """Pass an answer or a failure to its callback, and log what that raises.

    A failed assertion is raised, and ends the actor.
    """
    try:
        callback(*what)
    except AssertionError:
        raise
    except Exception:
        log.exception("an answer over a link was not taken")


def hand_over(actor: Actor, request: LinkRequest) -> None:
    """Pass a request to an actor. Its exception becomes the answer, and the link goes on.

    An unexpected exception is logged and answered with UNKNOWN_SERVER_ERROR. A failed assertion is
    raised, and ends the actor.
    """
    try:
        actor.link_received(request)
    except KafkaError as failure:
        request.fail(failure)
    except AssertionError:
        raise
    except Exception:
        log.exception("a request over a link failed: %s", request.kind)
        request.fail(UnknownServerError(f"{request.kind} failed; the log has the cause"))


class LocalRequest(Generic[LinkT]):
    """A request as its receiver sees it. Its header is an object that was never encoded."""

    __slots__ = ("_answered", "_failed", "_link", "header", "kind", "payload", "peer")

    def __init__(
        self,
        link: LinkT,
        kind: str,
        header: Any,
        payload: memoryview,
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        self.peer = link.number
        self.kind = kind
        self.header = header
        self.payload = payload
        self._link = link
        self._answered = answered
        self._failed = failed


class InprocRequest(LocalRequest["InprocLink"]):
    """A request between two actors of one process."""

    __slots__ = ()

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Answer the requester; ignored if the link has broken meanwhile."""
        if self._link.forget(self):
            tell(self._answered, header, joined(payload))

    def fail(self, failure: KafkaError) -> None:
        """Answer with an error."""
        self.break_off(failure)

    def break_off(self, failure: Exception) -> None:
        """Fail the request if it is still waiting."""
        if self._link.forget(self):
            tell(self._failed, failure)


class InprocLink:
    """A link within one process: requests are method calls, in the order of the calls."""

    unsent_bytes = 0

    def __init__(self, actor: Actor, number: int) -> None:
        self.number = number
        self._actor: Actor | None = actor
        self._waiting: dict[InprocRequest, None] = {}
        self._on_lost: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether the other side is still alive."""
        return self._actor is not None

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Buffer],
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        """Pass the request to the actor."""
        if self._actor is None:
            failed(PeerLost("the link is closed"))
            return
        request = InprocRequest(self, kind, header, joined(payload), answered, failed)
        self._waiting[request] = None
        hand_over(self._actor, request)

    ask = ask_over

    def forget(self, request: InprocRequest) -> bool:
        """Remove a request; return False if it was not waiting."""
        return self._waiting.pop(request, request) is None

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the other side is gone."""
        if self._actor is None:
            callback()
        else:
            self._on_lost.append(callback)

    def break_off(self) -> None:
        """The other side is gone: fail waiting requests and run the callbacks."""
        self._actor = None
        for request in tuple(self._waiting):
            request.break_off(PeerLost("the peer ended"))
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback()

    def abandon(self) -> None:
        """This side is gone: drop everything without a callback."""
        actor, self._actor = self._actor, None
        self._waiting.clear()
        self._on_lost.clear()
        if actor is not None:
            actor.link_lost(self.number)

    def close(self) -> None:
        """Close the link."""
        actor = self._actor
        self.break_off()
        if actor is not None:
            actor.link_lost(self.number)
