"""The way to the controller: whom the voters name."""

import asyncio
from typing import Any

import pytest

from raylog.actors.broker.controller_port import ControllerPort
from raylog.actors.controller.api import BrokerHeartbeat
from raylog.actors.metadata.voting import VoterState
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import ActorRef, PeerLost, PeerTimeout
from raylog.actors.runtime.inproc import InprocRuntime
from tests.support.virtual import VirtualRuntime, VirtualWorld

CLUSTER = "c"
_NOBODY: dict[str, Any] = {}


class VotersRuntime(VirtualRuntime):
    """Answers for the voters: (promised epoch, name of the controller), None: lost."""

    told: tuple[tuple[int, str] | None, ...] = ()
    hanging: int | None = None
    """Who does not answer."""

    async def find(self, name: str) -> ActorRef:
        """Nobody says where a controller is."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("never")

    async def call(self, peer: Any, method: str, *args: object, timeout_ms: int) -> VoterState:
        assert method == "voter_state"
        [number] = [one for one in range(3) if peer == broker_name(CLUSTER, one)]
        if number == self.hanging:
            await asyncio.get_running_loop().create_future()
        told = self.told[number]
        if told is None:
            raise PeerLost("lost")
        return VoterState(number, f"d{number}", (), told[0], 0, 0, 0, told[1])


class World(VirtualWorld):
    """A world of nobody but these."""

    def __init__(self) -> None:
        super().__init__(lambda role: _NOBODY[role], 0)

    def runtime_for(self, instance: str, name: str | None) -> InprocRuntime:
        return VotersRuntime(self, instance, name)


async def ensure() -> None:
    """Nobody is started."""


def named(*turns: tuple[tuple[int, str] | None, ...]) -> list[str]:
    """Whom the port turns to as the voters say one after the other."""

    async def scenario() -> list[str]:
        runtime = World().runtime()
        assert isinstance(runtime, VotersRuntime)
        port = ControllerPort(runtime, CLUSTER, ensure)
        names = []
        for told in turns:
            runtime.told = told
            before = port.name
            turned = await port.locate(range(3))
            assert turned == (port.name != before)
            names.append(port.name)
        return names

    return asyncio.run(scenario())


def test_the_controller_of_the_latest_epoch_is_called() -> None:
    assert named(((1, "a"), (2, "b"), None)) == ["b"]
    assert named(((2, "b"), None, None), ((1, "a"), None, None)) == ["b", "b"]


def test_a_later_promise_of_a_few_does_not_hide_the_controller_of_the_majority() -> None:
    """A voter that has come back promises whatever is asked: it has heard nobody yet."""
    assert named(((39, "rival"), (2, "serves"), (2, "serves"))) == ["serves"]
    few, all_of_them = ((3, "rival"), None, None), ((3, "rival"), (2, "serves"), (2, "serves"))
    assert named(few, all_of_them, all_of_them) == ["rival", "serves", "serves"]
    assert named(all_of_them, ((3, "rival"), (3, "rival"), None)) == ["serves", "rival"]


def test_a_majority_of_before_does_not_take_back_who_has_written_since() -> None:
    async def scenario() -> None:
        runtime = World().runtime()
        assert isinstance(runtime, VotersRuntime)
        port = ControllerPort(runtime, CLUSTER, ensure)
        assert port.written_by(3, "later")
        runtime.told = ((2, "before"), (2, "before"), None)
        assert not await port.locate(range(3))
        assert port.name == "later"
        runtime.told = ((4, "rival"), None, None)
        assert await port.locate(range(3))
        runtime.told = ((4, "rival"), (3, "later"), (3, "later"))
        assert await port.locate(range(3)), "it serves, though nothing had to be written since"
        assert port.name == "later"

    asyncio.run(scenario())


def test_of_two_that_asked_for_one_epoch_the_one_with_more_promises_is_called() -> None:
    """The other has not won it, and may be gone."""
    both = ((2, "lost"), (2, "won"), (2, "won"))
    assert named(((2, "lost"), None, (1, "a")), both, both) == ["lost", "won", "won"]


def test_a_voter_that_hangs_is_not_waited_for_when_the_others_agree() -> None:
    async def scenario() -> None:
        runtime = World().runtime()
        assert isinstance(runtime, VotersRuntime)
        runtime.told, runtime.hanging = ((2, "b"), (1, "a"), (2, "b")), 1
        port = ControllerPort(runtime, CLUSTER, ensure)
        async with asyncio.timeout(60):  # it hangs for good: a wait for it would not end
            assert await port.locate(range(3))
        assert port.name == "b"

    asyncio.run(scenario())


def test_who_writes_to_the_voter_here_is_the_controller() -> None:
    async def scenario() -> None:
        runtime = World().runtime()
        assert isinstance(runtime, VotersRuntime)
        port = ControllerPort(runtime, CLUSTER, ensure)
        assert port.written_by(2, "won")
        assert port.name == "won"
        assert not port.written_by(2, "won")
        assert not port.written_by(1, "older")
        runtime.told = ((2, "lost"), None, None)
        assert not await port.locate(range(3))
        assert port.name == "won"
        runtime.told = ((3, "next"), None, None)
        assert await port.locate(range(3))
        assert not port.written_by(2, "won")
        assert port.name == "next"
        assert not port.written_by(3, "next")

    asyncio.run(scenario())


def test_a_heartbeat_to_a_controller_that_cannot_be_found_ends() -> None:
    """Its machine may be gone, which the runtime does not know yet."""

    async def scenario() -> None:
        port = ControllerPort(World().runtime(), CLUSTER, ensure)
        asked = BrokerHeartbeat(0, 1, 1)
        with pytest.raises(PeerTimeout, match="did not answer within 10 ms"):
            await port.heartbeat(asked, 10)
        beating = asyncio.ensure_future(port.heartbeat(asked, 60_000))
        await asyncio.sleep(0)
        assert port.written_by(2, "next")
        with pytest.raises(PeerLost, match="another controller has come before heartbeat"):
            await beating

    asyncio.run(scenario())
