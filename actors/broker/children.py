"""The actors that a broker owns: started, watched, told things in order, found again."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from raylog.actors.metadata.snapshots import EncodedSnapshot
from raylog.actors.runtime.base import ActorRef, PeerLost, PeerTimeout, Runtime, Timer
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
TELL_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Letter:
    """One call to a child."""

    method: str
    args: tuple[Any, ...] | Callable[[], Awaitable[tuple[Any, ...]]]
    """A function is asked for them when it is the letter's turn: they may not be there yet."""
    timeout_ms: int
    answered: Callable[[Any], None] | None


def taken_from(children: dict[str, Child]) -> list[Child]:
    """All children of a kind, whose end is no loss any more."""
    taken = list(children.values())
    children.clear()
    for child in taken:
        child.forget()
    return taken


class Child:
    """A running child: calls to it happen one after the other, in the order they were posted.

    A child that fails a call is ended: its successor begins from what the broker knows.
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
        """Whether everything posted was answered."""
        return not self._unanswered

    def post(
        self,
        method: str,
        *args: Any,
        timeout_ms: int = TELL_TIMEOUT_MS,
        answered: Callable[[Any], None] | None = None,
    ) -> None:
        """Call a method after everything posted before; `answered` gets the result."""
        self._post(Letter(method, args, timeout_ms, answered))

    def post_snapshot(
        self, encoded: Awaitable[EncodedSnapshot], answered: Callable[[Any], None] | None = None
    ) -> None:
        """Have the child's metadata replaced by a snapshot, once that is encoded."""

        async def update() -> tuple[Any, ...]:
            snapshot = await encoded
            return -1, snapshot.offset, [], snapshot.parts

        self._post(Letter("apply_metadata", update, TELL_TIMEOUT_MS, answered))

    def _post(self, letter: Letter) -> None:
        if self._lost:
            return
        self._letters.append(letter)
        self._unanswered += 1
        if not self._delivering:
            self._delivering = True
            self._runtime.start(self._deliver(), f"tell {self.ref.name}")

    def forget(self) -> None:
        """Its end is no loss any more."""
        self._lost = True
        self._letters.clear()
        self._watch.cancel()

    def _gone(self) -> None:
        """The link to it broke: make sure the process is gone, then say so."""
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
                answer = await self._runtime.call(
                    self.ref, letter.method, *args, timeout_ms=letter.timeout_ms
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
