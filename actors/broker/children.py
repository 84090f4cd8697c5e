"""A child actor of a broker: gets calls in order and is watched for its end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from raylog.actors.peers.metadata_copies import EncodedSnapshot
from raylog.actors.remote import Gateway, Method, T, Ts, call
from raylog.actors.runtime.base import ActorRef, PeerLost, PeerTimeout, Runtime, Timer
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
TELL_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Letter:
    """One call to a child."""

    method: Callable[..., Coroutine[Any, Any, object]]
    args: tuple[Any, ...] | Callable[[], Awaitable[tuple[Any, ...]]]
    """Or a function that supplies them when the call is made, if they are not known before."""
    timeout_ms: int
    answered: Callable[[Any], None] | None


def taken_from(children: dict[str, Child]) -> list[Child]:
    """Remove and return all children of a kind; their end is no longer reported as a loss."""
    taken = list(children.values())
    children.clear()
    for child in taken:
        child.forget()
    return taken


class Child:
    """A running child. Calls to it are made one at a time, in the order they were posted.

    A child that fails a call is killed, and its successor starts from what the broker knows.
    """

    def __init__(self, runtime: Runtime, ref: ActorRef, on_lost: Callable[[Child], None]) -> None:
        self.ref = ref
        self.restarts = 0
        self._runtime = runtime
        self._on_lost = on_lost
        self._letters: deque[Letter] = deque()
        self._unanswered = 0
        self._delivering = False
        self._lost = False
        self._watch: Timer = runtime.watch(ref, lambda _: self._gone())

    @property
    def is_idle(self) -> bool:
        """Whether everything posted has been answered."""
        return not self._unanswered

    def post(
        self,
        method: Method[*Ts, T],
        *args: *Ts,
        timeout_ms: int = TELL_TIMEOUT_MS,
        answered: Callable[[T], None] | None = None,
    ) -> None:
        """Queue a method call; `answered` gets its result."""
        self._post(Letter(method, args, timeout_ms, answered))

    def post_snapshot(
        self, encoded: Awaitable[EncodedSnapshot], answered: Callable[[Any], None] | None = None
    ) -> None:
        """Queue a snapshot, once it is encoded, that replaces the child's metadata."""

        async def update() -> tuple[Any, ...]:
            snapshot = await encoded
            return -1, snapshot.offset, [], snapshot.parts

        self._post(Letter(Gateway.apply_metadata, update, TELL_TIMEOUT_MS, answered))

    def _post(self, letter: Letter) -> None:
        if self._lost:
            return
        self._letters.append(letter)
        self._unanswered += 1
        if not self._delivering:
            self._delivering = True
            self._runtime.start(self._deliver(), f"tell {self.ref.name}")

    def forget(self) -> None:
        """Stop reporting this child's end as a loss."""
        self._lost = True
        self._letters.clear()
        self._watch.cancel()

    def _gone(self) -> None:
        """Handle a broken link: kill the process, then report the loss."""
        if not self._lost:
            self.forget()
            self._runtime.start(self._bury(), f"bury {self.ref.name}")

    async def _bury(self) -> None:
        log.warning("%s (pid %d) is lost", self.ref.name, self.ref.pid)
        await self._runtime.kill(self.ref)
        self._on_lost(self)

    async def _deliver(self) -> None:
        while self._letters:
            letter = self._letters.popleft()
            args = await letter.args() if callable(letter.args) else letter.args
            try:
                answer = await call(
                    self._runtime, self.ref, letter.method, *args, timeout_ms=letter.timeout_ms
                )
            except PeerLost as lost:
                log.info("%s is gone: %s", self.ref.name, lost)
                self._gone()
            except (PeerTimeout, KafkaError) as failure:
                log.error("%s failed %s: %s", self.ref.name, letter.method, failure)
                self._gone()
            else:
                self._unanswered -= 1
                if letter.answered is not None and not self._lost:
                    letter.answered(answer)
        self._delivering = False
