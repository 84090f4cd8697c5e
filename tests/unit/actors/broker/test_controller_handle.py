"""How brokers find the controller: through the name that the voters give."""

import asyncio
from typing import Any

import pytest

from raylog.actors.broker.controller_handle import ControllerHandle
from raylog.actors.controller.messages import BrokerHeartbeat
from raylog.actors.metadata.voting import VoterState
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import ActorRef, PeerLost, PeerTimeout
from raylog.actors.runtime.inproc import InprocRuntime
from tests.worlds.decorators import in_loop
from tests.worlds.virtual_time import VirtualRuntime, VirtualWorld

CLUSTER = "c"
_NOBODY: dict[str, Any] = {}


class VotersRuntime(VirtualRuntime):
    """Answers for the voters: (promised epoch, controller name); None stands for a lost voter."""

    promises: tuple[tuple[int, str] | None, ...] = ()
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
        promise = self.promises[number]
        if promise is None:
            raise PeerLost("lost")
        return VoterState(number, f"d{number}", (), promise[0], 0, 0, 0, promise[1])


class World(VirtualWorld):
    """A world without actors, in which every runtime is a VotersRuntime."""

    def __init__(self) -> None:
        super().__init__(lambda role: _NOBODY[role], 0)

    def runtime_for(self, instance: str, name: str | None) -> InprocRuntime:
        return VotersRuntime(self, instance, name)


async def ensure() -> None:
    """Nobody is started."""


def named(*turns: tuple[tuple[int, str] | None, ...]) -> list[str]:
    """Whom the handle turns to as the voters say one after the other."""

    async def scenario() -> list[str]:
        runtime = World().runtime()
        assert isinstance(runtime, VotersRuntime)
        handle = ControllerHandle(runtime, CLUSTER, ensure)
        names = []
        for answers in turns:
            runtime.promises = answers
            before = handle.name
            turned = await handle.locate(range(3))
            assert turned == (handle.name != before)
            names.append(handle.name)
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


@in_loop
async def test_a_majority_of_before_does_not_take_back_who_has_written_since() -> None:
    runtime = World().runtime()
    assert isinstance(runtime, VotersRuntime)
    handle = ControllerHandle(runtime, CLUSTER, ensure)
    assert handle.written_by(3, "later")
    runtime.promises = ((2, "before"), (2, "before"), None)
    assert not await handle.locate(range(3))
    assert handle.name == "later"
    runtime.promises = ((4, "rival"), None, None)
    assert await handle.locate(range(3))
    runtime.promises = ((4, "rival"), (3, "later"), (3, "later"))
    assert await handle.locate(range(3)), "it serves, though nothing had to be written since"
    assert handle.name == "later"


def test_controller_with_more_promises_for_an_epoch_is_called() -> None:
    """The other has not won it, and may be gone."""
    both = ((2, "lost"), (2, "won"), (2, "won"))
    assert named(((2, "lost"), None, (1, "a")), both, both) == ["lost", "won", "won"]


@in_loop
async def test_a_voter_that_hangs_is_not_waited_for_when_the_others_agree() -> None:
    runtime = World().runtime()
    assert isinstance(runtime, VotersRuntime)
    runtime.promises, runtime.hanging = ((2, "b"), (1, "a"), (2, "b")), 1
    handle = ControllerHandle(runtime, CLUSTER, ensure)
    async with asyncio.timeout(60):  # it hangs for good: a wait for it would not end
        assert await handle.locate(range(3))
    assert handle.name == "b"


@in_loop
async def test_writer_of_the_highest_epoch_is_the_controller() -> None:
    runtime = World().runtime()
    assert isinstance(runtime, VotersRuntime)
    handle = ControllerHandle(runtime, CLUSTER, ensure)
    assert handle.written_by(2, "won")
    assert handle.name == "won"
    assert not handle.written_by(2, "won")
    assert not handle.written_by(1, "older")
    runtime.promises = ((2, "lost"), None, None)
    assert not await handle.locate(range(3))
    assert handle.name == "won"
    runtime.promises = ((3, "next"), None, None)
    assert await handle.locate(range(3))
    assert not handle.written_by(2, "won")
    assert handle.name == "next"
    assert not handle.written_by(3, "next")


@in_loop
async def test_a_heartbeat_to_a_controller_that_cannot_be_found_ends() -> None:
    """Its machine may be gone, which the runtime does not know yet."""

    handle = ControllerHandle(World().runtime(), CLUSTER, ensure)
    asked = BrokerHeartbeat(0, 1, 1)
    with pytest.raises(PeerTimeout, match="did not answer within 10 ms"):
        await handle.heartbeat(asked, 10)
    beating = asyncio.ensure_future(handle.heartbeat(asked, 60_000))
    await asyncio.sleep(0)
    assert handle.written_by(2, "next")
    with pytest.raises(PeerLost, match="another controller has come before heartbeat"):
        await beating
