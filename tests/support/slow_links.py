"""A runtime whose links are opened when the test says so."""

from __future__ import annotations

import asyncio
from collections import deque

from raylog.actors.runtime.base import PeerLost
from tests.support.gateway_world import FakeLink, FakeRuntime, settle


class SlowRuntime(FakeRuntime):
    """Each attempt to open a link waits for `connected` or `refused`, the oldest one first."""

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
        """The oldest attempt succeeds."""
        link = FakeLink()
        self.waiting.popleft().set_result(link)
        await settle()
        return link

    async def refused(self) -> None:
        """The oldest attempt fails."""
        self.waiting.popleft().set_exception(PeerLost("nobody is there"))
        await settle()
