"""Requests for a link that is full: sent in order, and none is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.gateway.backlog import LOOK_MS, UNSENT_BYTES_MAX, Backlog
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.runtime import FakeLink, FakeRuntime


class Context:
    """A request of a connection, whose next request comes as soon as allowed."""

    def __init__(
        self, events: list[str], name: str, then: Callable[[], None] | None = None
    ) -> None:
        self._events = events
        self._name = name
        self._then = then

    def takes_long(self) -> None:
        self._events.append(f"{self._name} holds its connection")

    def is_begun(self) -> None:
        self._events.append(f"{self._name} lets it go on")
        if self._then is not None:
            self._then()


class Peer:
    """A link, and requests for it."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.backlog = Backlog(runtime)  # type: ignore[arg-type]  # a fake
        self.link = FakeLink()
        self.events: list[str] = []

    def send(
        self, name: str, link: FakeLink | None = None, then: Callable[[], None] | None = None
    ) -> None:
        context: Any = Context(self.events, name, then)
        self.backlog.send(link or self.link, context, lambda: self.events.append(name))


@in_world(run)
async def test_requests_are_sent_at_once_while_the_link_has_room(world: World) -> None:
    peer = Peer(world.runtime)
    peer.link.unsent_bytes = UNSENT_BYTES_MAX
    peer.send("a")
    peer.send("b")
    assert peer.events == ["a", "b"]
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_waiting_requests_are_sent_first_and_in_order(world: World) -> None:
    peer = Peer(world.runtime)
    peer.link.unsent_bytes = UNSENT_BYTES_MAX + 1
    peer.send("a", then=lambda: peer.send("a, next"))
    peer.send("b")
    await world.runtime.advance(10 * LOOK_MS)
    assert peer.events == ["a holds its connection", "b holds its connection"]
    peer.events.clear()
    peer.link.unsent_bytes = 0
    peer.send("c")
    assert peer.events == ["c holds its connection"], "there is room, and others were before it"
    peer.events.clear()
    await world.runtime.advance(LOOK_MS)
    sent = [one for one in peer.events if one in ("a", "b", "c", "a, next")]
    assert sent[:3] == ["a", "b", "c"]
    assert peer.events.index("a") < peer.events.index("a lets it go on")
    await world.runtime.advance(LOOK_MS)
    assert peer.events.count("a, next") == 1
    assert world.runtime.pending_timers() == 0, "nobody waits any more"
    peer.send("d")
    assert peer.events[-1] == "d"


@pytest.mark.parametrize("links", [1, 2])
@in_world(run)
async def test_one_timer_looks_at_all_links(world: World, *, links: int) -> None:
    peer = Peer(world.runtime)
    slow = [FakeLink() for _ in range(links)]
    for at, link in enumerate(slow):
        link.unsent_bytes = UNSENT_BYTES_MAX + 1
        peer.send(f"{at}", link)
    assert world.runtime.pending_timers() == 1
    slow[0].unsent_bytes = 0
    await world.runtime.advance(LOOK_MS)
    assert "0" in peer.events
    assert world.runtime.pending_timers() == links - 1
    for link in slow:
        link.unsent_bytes = 0
    await world.runtime.advance(LOOK_MS)
    assert {f"{at}" for at in range(links)} <= {*peer.events}
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_a_link_that_breaks_is_waited_for_no_longer(world: World) -> None:
    """Requests to it fail, as they do over any link that is closed."""

    peer = Peer(world.runtime)
    peer.link.unsent_bytes = UNSENT_BYTES_MAX + 1
    for name in "ab":
        peer.send(name)
    peer.link.lose()
    await world.runtime.advance(LOOK_MS)
    assert [one for one in peer.events if len(one) == 1] == ["a", "b"]
    assert world.runtime.pending_timers() == 0
