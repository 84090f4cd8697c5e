"""Requests for a link that does not take them: in order, and nobody is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.gateway.backlog import LOOK_MS, UNSENT_BYTES_MAX, Backlog
from tests.support.gateway_world import FakeLink, FakeRuntime, World, run


class Context:
    """A request of a connection, whose next one comes as soon as it may."""

    def __init__(self, told: list[str], name: str, then: Callable[[], None] | None = None) -> None:
        self._told = told
        self._name = name
        self._then = then

    def takes_long(self) -> None:
        self._told.append(f"{self._name} holds its connection")

    def is_begun(self) -> None:
        self._told.append(f"{self._name} lets it go on")
        if self._then is not None:
            self._then()


class Peer:
    """A link, and requests for it."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.backlog = Backlog(runtime)  # type: ignore[arg-type]  # a fake
        self.link = FakeLink()
        self.told: list[str] = []

    def send(
        self, name: str, link: FakeLink | None = None, then: Callable[[], None] | None = None
    ) -> None:
        context: Any = Context(self.told, name, then)
        self.backlog.send(link or self.link, context, lambda: self.told.append(name))


def test_what_the_link_takes_goes_at_once() -> None:
    async def scenario(world: World) -> None:
        peer = Peer(world.runtime)
        peer.link.unsent_bytes = UNSENT_BYTES_MAX
        peer.send("a")
        peer.send("b")
        assert peer.told == ["a", "b"]
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_what_waits_is_sent_in_order_before_anything_behind_it() -> None:
    async def scenario(world: World) -> None:
        peer = Peer(world.runtime)
        peer.link.unsent_bytes = UNSENT_BYTES_MAX + 1
        peer.send("a", then=lambda: peer.send("a, next"))
        peer.send("b")
        await world.runtime.advance(10 * LOOK_MS)
        assert peer.told == ["a holds its connection", "b holds its connection"]
        peer.told.clear()
        peer.link.unsent_bytes = 0
        peer.send("c")
        assert peer.told == ["c holds its connection"], "there is room, and others were before it"
        peer.told.clear()
        await world.runtime.advance(LOOK_MS)
        sent = [one for one in peer.told if one in ("a", "b", "c", "a, next")]
        assert sent[:3] == ["a", "b", "c"]
        assert peer.told.index("a") < peer.told.index("a lets it go on")
        await world.runtime.advance(LOOK_MS)
        assert peer.told.count("a, next") == 1
        assert world.runtime.pending_timers() == 0, "nobody waits any more"
        peer.send("d")
        assert peer.told[-1] == "d"

    run(scenario)


@pytest.mark.parametrize("links", [1, 2])
def test_one_timer_looks_at_all_links(links: int) -> None:
    async def scenario(world: World) -> None:
        peer = Peer(world.runtime)
        slow = [FakeLink() for _ in range(links)]
        for at, link in enumerate(slow):
            link.unsent_bytes = UNSENT_BYTES_MAX + 1
            peer.send(f"{at}", link)
        assert world.runtime.pending_timers() == 1
        slow[0].unsent_bytes = 0
        await world.runtime.advance(LOOK_MS)
        assert "0" in peer.told
        assert world.runtime.pending_timers() == links - 1
        for link in slow:
            link.unsent_bytes = 0
        await world.runtime.advance(LOOK_MS)
        assert {f"{at}" for at in range(links)} <= {*peer.told}
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_a_link_that_breaks_is_waited_for_no_longer() -> None:
    """Requests to it fail, as they do over any link that is closed."""

    async def scenario(world: World) -> None:
        peer = Peer(world.runtime)
        peer.link.unsent_bytes = UNSENT_BYTES_MAX + 1
        for name in "ab":
            peer.send(name)
        peer.link.lose()
        await world.runtime.advance(LOOK_MS)
        assert [one for one in peer.told if len(one) == 1] == ["a", "b"]
        assert world.runtime.pending_timers() == 0

    run(scenario)
