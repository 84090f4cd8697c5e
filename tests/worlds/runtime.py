"""A fake runtime and fake links, under a clock that tests move."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.gateway.connections import Connections
from raylog.actors.runtime.base import Apart, PeerLost, PeerTimeout, Work
from raylog.actors.runtime.links import ask_over, joined
from raylog.actors.runtime.thread_work import WorkInThreads
from raylog.storage.disk import Disk, OsDisk
from raylog.wire.errors import KafkaError


@dataclass(order=True)
class FakeTimer:
    """A timer of the fake clock."""

    at_ms: float
    number: int
    callback: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """Virtual time; timers run in the order in which they are due."""

    def __init__(self, now_ms: float) -> None:
        self._now_ms = now_ms
        self._timers: list[FakeTimer] = []
        self._numbers = itertools.count()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        """Run a callback after a delay in virtual time."""
        timer = FakeTimer(self._now_ms + delay_ms, next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def turn(self, end_ms: float) -> bool:
        """Run the next timer that is due by `end_ms`; return False if there is none."""
        if not self._timers or self._timers[0].at_ms > end_ms:
            return False
        timer = heapq.heappop(self._timers)
        self._now_ms = timer.at_ms
        if timer.callback is not None:
            timer.callback()
        return True


class FakeRuntime(Clock):
    """A runtime with fake clock and peers; `advance` moves the clock and runs due timers."""

    instance = "fake"
    rest_s = 0.0

    def __init__(self) -> None:
        super().__init__(1_000_000.0)
        self.random = random.Random(1)
        self.disk: Disk = OsDisk()
        self.peers: dict[str, Any] = {}
        self.links: dict[str, FakeLink] = {}
        self.failures: list[BaseException] = []
        self.foreign_hangs = False
        """Whether plug-ins never return."""

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        return self._now_ms

    def clock(self) -> float:
        return self.monotonic_ms() / 1000

    async def sleep(self, seconds: float) -> None:
        if not seconds:
            await asyncio.sleep(0)  # other tasks run meanwhile; no time passes
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds * 1000, lambda: woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def pending_timers(self, *, looks: bool = False) -> int:
        """Count the pending timers; with `looks`, also the one that checks idle connections."""
        callbacks = [timer.callback for timer in self._timers if timer.callback is not None]
        look = None if looks else Connections._look
        return sum(getattr(one, "__func__", one) is not look for one in callbacks)

    async def advance(self, ms: float) -> None:
        """Move the clock, running timers in order and tasks in between."""
        end_ms = self._now_ms + ms
        await settle()
        while self.turn(end_ms):
            await settle()
        self._now_ms = end_ms

    def process_usage(self) -> None:
        """Return None: a fake has no process of its own."""

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failures.append(failure)

    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def apart(self, work: Work) -> Apart:
        return WorkInThreads(self, work)

    async def run_foreign(self, function: Callable[..., Any], *args: Any, timeout_ms: int) -> Any:
        if self.foreign_hangs:
            await self.sleep(timeout_ms / 1000)
            raise PeerTimeout(f"not done within {timeout_ms} ms")
        return function(*args)

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        if peer not in self.peers:
            raise PeerLost(f"{peer} is gone")
        return await getattr(self.peers[peer], method)(*args)

    async def connect(self, address: str) -> FakeLink:
        if address not in self.links:
            raise PeerLost(f"nobody answers at {address}")
        return self.links[address]


async def settle() -> None:
    """Run all tasks until each of them waits."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(eq=False)
class FakeRequest:
    """A request on a fake link that waits for the test's answer."""

    kind: str
    header: Any
    payload: bytes
    _answered: Callable[[Any, memoryview], None]
    _failed: Callable[[Exception], None]
    open: bool = True

    def reply(self, header: Any = None, payload: bytes = b"") -> None:
        if self.open:
            self.open = False
            self._answered(header, memoryview(payload))

    def fail(self, failure: Exception) -> None:
        if self.open:
            self.open = False
            self._failed(failure)


class FakeLink:
    """A link to a peer that the test plays.

    With `answering`, each request is answered at once, as within one process.
    """

    unsent_bytes = 0

    def __init__(self) -> None:
        self.requests: list[FakeRequest] = []
        self.is_open = True
        self.answering: Callable[[FakeRequest], Any] | None = None
        self._on_lost: list[Callable[[], None]] = []

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Any],
        answered: Callable[[Any, memoryview], None],
        failed: Callable[[Exception], None],
    ) -> None:
        request = FakeRequest(kind, header, bytes(joined(payload)), answered, failed)
        self.requests.append(request)
        if not self.is_open:
            request.fail(PeerLost("the link is closed"))
        elif self.answering is not None:
            try:
                request.reply(self.answering(request))
            except KafkaError as failure:
                request.fail(failure)

    def ask(self, kind: str, header: Any = None, payload: Sequence[Any] = ()) -> Any:
        return ask_over(self, kind, header, payload)

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._on_lost.append(callback)

    def lose(self) -> None:
        """Close the link because the peer's process ended."""
        self.is_open = False
        for request in self.requests:
            request.fail(PeerLost("the peer ended"))
        for callback in self._on_lost:
            callback()

    def close(self) -> None:
        self.lose()

    def take(self, kind: str | None = None) -> FakeRequest:
        """Return the oldest open request, of a kind if one is given."""
        return next(one for one in self.requests if one.open and (kind is None or one.kind == kind))

    def kinds(self) -> list[str]:
        return [one.kind for one in self.requests]


class SlowRuntime(FakeRuntime):
    """A runtime whose connection attempts wait for `connected` or `refused`, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.waiting: deque[asyncio.Future[FakeLink]] = deque()

    async def connect(self, address: str) -> FakeLink:
        self.asked.append(address)
        waiting: asyncio.Future[FakeLink] = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        return await waiting

    async def connected(self) -> FakeLink:
        """Let the oldest attempt succeed."""
        link = FakeLink()
        self.waiting.popleft().set_result(link)
        await settle()
        return link

    async def refused(self) -> None:
        """Let the oldest attempt fail."""
        self.waiting.popleft().set_exception(PeerLost("nobody is there"))
        await settle()
