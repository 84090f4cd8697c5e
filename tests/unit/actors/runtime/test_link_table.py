"""One link per address, opened on demand and reopened when it breaks."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from raylog.actors.runtime.base import Link, PeerLost, Runtime
from raylog.actors.runtime.link_table import Links
from tests.worlds.decorators import in_loop
from tests.worlds.runtime import SlowRuntime, settle


class Rig:
    """A table of links, and the result of each use."""

    def __init__(self) -> None:
        self.runtime = SlowRuntime()
        self.lost: list[tuple[str, Link]] = []
        runtime: Any = self.runtime
        self.links = Links(cast(Runtime, runtime), lambda *args: self.lost.append(args))
        self.outcomes: list[object] = []

    def use(self, address: str) -> None:
        self.links.use(address, self.outcomes.append, self.outcomes.append)


@in_loop
async def test_callers_share_a_link_that_is_being_opened() -> None:
    rig = Rig()
    asked = asyncio.ensure_future(rig.links.to("a"))
    await settle()
    rig.use("a")
    rig.use("b")
    await settle()
    assert len(rig.runtime.waiting) == 2
    first = await rig.runtime.connected()
    assert (await asked, rig.outcomes) == (first, [first])
    rig.use("a")
    assert rig.outcomes == [first, first], "an open link is used at once"
    second = await rig.runtime.connected()
    assert rig.outcomes[2:] == [second]
    assert await rig.links.to("a") is first


@in_loop
async def test_a_process_that_is_gone_fails_all_who_wait_and_is_looked_for_again() -> None:
    rig = Rig()
    asked = asyncio.ensure_future(rig.links.to("a"))
    given_up = asyncio.ensure_future(rig.links.to("a"))
    await settle()
    rig.use("a")
    given_up.cancel()
    gone = PeerLost("gone")
    rig.runtime.waiting.popleft().set_exception(gone)
    await settle()
    with pytest.raises(PeerLost):
        await asked
    assert rig.outcomes == [gone]
    rig.use("a")
    await settle()
    link = await rig.runtime.connected()
    assert rig.outcomes == [gone, link]


@in_loop
async def test_a_link_that_breaks_is_reported_and_opened_anew_by_who_needs_it() -> None:
    rig = Rig()
    rig.use("a")
    await settle()
    link = await rig.runtime.connected()
    link.lose()
    assert rig.lost == [("a", link)]
    assert not rig.runtime.waiting
    rig.use("a")
    await settle()
    assert rig.outcomes == [link, await rig.runtime.connected()]


@in_loop
async def test_all_are_closed_also_one_that_is_just_being_opened() -> None:
    rig = Rig()
    rig.use("a")
    rig.use("b")
    await settle()
    first = await rig.runtime.connected()
    rig.links.close()
    second = await rig.runtime.connected()
    assert [first.is_open, second.is_open] == [False, False]
