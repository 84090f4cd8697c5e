"""A cluster is founded only if no broker's directory has belonged to one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raylog.actors.controller import quorum as quorum_module
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import (
    CreateTopics,
    Follow,
    MetadataUpdate,
    NewTopic,
    RegisterBroker,
)
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.quorum import QuorumLost
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.followed import (
    DirectoryHistory,
    Followed,
    MetadataLost,
    MetadataRefused,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.voting import NewEpoch
from raylog.actors.names import CONTROLLER, controller_name
from raylog.actors.runtime.base import ActorSpec
from raylog.wire.errors import InvalidRequest, NotController
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import in_loop, in_world
from tests.worlds.metadata import take_in

FOLLOWED = Followed("m", 4, 900)
HISTORIES = [
    DirectoryHistory(0, broker_epoch=17),
    DirectoryHistory(0, followed=FOLLOWED),
    DirectoryHistory(0, replicas=1),
]


def voting(voters: int, brokers: int) -> VoterWorld:
    """As many brokers, of which the first ones vote."""
    world = VoterWorld(brokers)
    world.voters = world.voters[:voters]
    return world


def quorum_of(world: VoterWorld, *, above_epoch: int = 0) -> VoterQuorum:
    ids = range(len(world.disks))
    return VoterQuorum(world.runtime, CLUSTER, ids, above_epoch=above_epoch)


async def begun(world: VoterWorld) -> None:
    """A cluster with one entry of metadata."""
    quorum = quorum_of(world)
    await quorum.take_over()
    await quorum.append([LogEntry(0, 1, (b"0@1",))])


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("holder", [0, 1, 2])
@pytest.mark.parametrize("voters", [1, 3])
@in_loop
async def test_no_cluster_is_founded_where_one_directory_has_known_one(
    history: DirectoryHistory, holder: int, voters: int
) -> None:
    world = voting(voters, 3)
    await world.up(0, 1, 2)
    world.hosts[holder].known = history._replace(broker_id=holder)
    with pytest.raises(MetadataLost, match=f"have data of it: broker {holder}: "):
        await quorum_of(world).take_over()
    assert all(host.voter.rules.is_blank for host in world.hosts.values())


@in_loop
async def test_no_cluster_is_founded_before_every_broker_has_said_that_it_knows_none() -> None:
    world = voting(1, 3)
    await world.up(0, 2)
    with pytest.raises(QuorumLost, match="broker 1 has not said yet that it knows none"):
        await quorum_of(world).take_over()
    assert world.hosts[0].voter.rules.is_blank
    await world.up(1)
    await quorum_of(world).take_over()
    assert not world.hosts[0].voter.rules.is_blank


def test_a_broker_that_hangs_lets_no_cluster_be_founded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_module, "STATE_TIMEOUT_MS", 10)

    async def scenario() -> None:
        world = voting(1, 2)
        await world.up(0, 1)
        world.hosts[1].hangs = True
        with pytest.raises(QuorumLost, match="broker 1 has not said yet"):
            await quorum_of(world).take_over()

    asyncio.run(scenario())


@in_loop
async def test_a_cluster_that_is_there_asks_nobody_for_histories() -> None:
    world = voting(1, 3)
    await world.up(0, 1, 2)
    await begun(world)
    await world.down(1)
    world.hosts[2].known = DirectoryHistory(2, 17)
    await quorum_of(world).take_over()


@pytest.mark.parametrize("history", HISTORIES)
@in_loop
async def test_a_voter_lets_nobody_found_a_cluster_on_what_is_left_of_its_directory(
    history: DirectoryHistory,
) -> None:
    world = voting(1, 1)
    await world.up(0)
    world.hosts[0].known = history
    with pytest.raises(InvalidRequest, match="no cluster is founded here: broker 0"):
        await world.hosts[0].voter.new_epoch(NewEpoch(1, "c", founds=True))
    assert world.hosts[0].voter.rules.is_blank


@in_loop
async def test_a_majority_of_lost_voters_is_named() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    await begun(world)
    for lost in (0, 1):
        await world.down(lost)
        world.disks[lost] = type(world.disks[lost])()
        await world.up(lost)
    with pytest.raises(MetadataLost, match=r"Of the 3 voters .* of broker 0, 1 is new") as why:
        await quorum_of(world).take_over()
    assert "raylog metadata rebuild" in str(why.value)
    await world.down(2)  # nobody is left who knows of more
    with pytest.raises(QuorumLost, match="0 of 3 voters answer"):
        await quorum_of(world).take_over()


@in_loop
async def test_an_epoch_is_above_what_brokers_are_known_to_have_followed() -> None:
    world = voting(1, 1)
    await world.up(0)
    quorum = quorum_of(world, above_epoch=41)
    await quorum.take_over()
    assert quorum.epoch == 42


# ---- the controller's shell ------------------------------------------------------------------

NAME = controller_name(CLUSTER)
TIMEOUT_MS = 5_000


class World(VoterWorld):
    """Brokers, of which the first votes, and a controller."""

    def __init__(self, brokers: int) -> None:
        super().__init__(brokers, {CONTROLLER: ControllerActor})
        self.voters = self.voters[:1]

    async def start_controller(self) -> None:
        ids = list(range(len(self.disks)))
        args = {"cluster_id": CLUSTER, "broker_ids": ids, "settings": {}}
        await self.runtime.spawn(ActorSpec(NAME, CONTROLLER, args))

    async def kill_controller(self) -> None:
        await self.runtime.kill(await self.runtime.find(NAME))

    async def call(self, method: str, *args: object) -> object:
        """A call that is repeated until a controller serves, or cannot."""
        while True:
            try:
                return await self.runtime.call(NAME, method, *args, timeout_ms=TIMEOUT_MS)
            except NotController:
                await asyncio.sleep(0.001)

    async def metadata(self) -> Followed:
        """How far which metadata goes, as a new follower finds it."""
        image = MetadataImage()
        update = await self.call("follow", Follow(9, 0, 0))
        assert isinstance(update, MetadataUpdate)
        take_in(image, update)
        return image.followed

    async def register(self, followed: Followed, previous_broker_epoch: int = -1) -> int:
        asked = RegisterBroker(1, CLUSTER, "d1", "i1", "h", 1, followed=followed)
        asked = asked._replace(previous_broker_epoch=previous_broker_epoch)
        epoch = await self.call("register_broker", asked)
        assert isinstance(epoch, int)
        return epoch


def scenario_of(story: Callable[[World], Awaitable[None]], brokers: int = 1) -> None:
    async def main() -> None:
        world = World(brokers)
        await world.up(*range(brokers))
        await story(world)
        assert world.world.failures == []

    asyncio.run(main())


@in_world(scenario_of, 2)
async def test_controller_without_metadata_answers_metadata_lost(world: World) -> None:
    world.hosts[1].known = DirectoryHistory(1, 17)
    await world.start_controller()
    is_lost = "the metadata is lost. Restore .*broker 1: broker epoch 17"
    for asked in (world.register(Followed()), world.call("follow", Follow(9, 0, 0))):
        with pytest.raises(MetadataLost, match=is_lost):
            await asked
    topic = CreateTopics([NewTopic("t", 1, 1)])
    with pytest.raises(NotController, match=is_lost):  # for clients it is away
        await world.runtime.call(NAME, "create_topics", topic, timeout_ms=TIMEOUT_MS)
    world.hosts[1].known = DirectoryHistory(1)
    await world.kill_controller()
    await world.start_controller()
    assert await world.register(Followed()) > 0


@in_world(scenario_of, 2)
async def test_why_a_controller_does_not_serve_is_reported(world: World) -> None:
    await world.down(1)
    await world.start_controller()
    asked = Follow(9, 0, 0)
    refusals: list[str] = []
    while len(refusals) < 2:
        with pytest.raises(NotController) as refused:
            await world.runtime.call(NAME, "follow", asked, timeout_ms=TIMEOUT_MS)
        if str(refused.value) not in refusals:
            refusals.append(str(refused.value))
        await asyncio.sleep(0)
    assert "does not serve: it has not won an epoch yet" in refusals[0]
    assert "does not serve: no voter has any metadata, and broker 1 has not said" in refusals[1]


@in_world(scenario_of)
async def test_a_broker_that_knows_more_or_others_is_refused_and_one_that_knows_less_is_not(
    world: World,
) -> None:
    await world.start_controller()
    known = await world.metadata()
    for wrong in (
        known._replace(metadata_id="other"),
        known._replace(offset=known.offset + 1),
        known._replace(epoch=0),
    ):
        with pytest.raises(MetadataRefused, match="broker 1 cannot follow the metadata"):
            await world.register(wrong)
    with pytest.raises(MetadataRefused, match="the broker had broker epoch 77"):
        await world.register(Followed(), previous_broker_epoch=77)
    assert await world.register(known, previous_broker_epoch=1) == known.offset
    assert await world.register(known._replace(offset=1)) == known.offset


@in_world(scenario_of)
async def test_a_follower_whose_records_are_not_the_logs_is_refused(world: World) -> None:
    await world.start_controller()
    known = await world.metadata()
    await world.kill_controller()
    await world.start_controller()
    later = await world.metadata()
    expected = known._replace(epoch=2, offset=known.offset + 1, nonce=later.nonce)
    assert later == expected
    for offset, epoch, metadata_id, nonce in (
        (later.offset, 1, known.metadata_id, known.nonce),
        (later.offset + 1, 2, known.metadata_id, later.nonce),
        (known.offset, 2, known.metadata_id, later.nonce),
        (known.offset, 1, known.metadata_id, later.nonce),
        (known.offset, 1, "other", known.nonce),
    ):
        with pytest.raises(MetadataRefused, match="broker 1 cannot follow"):
            await world.call("follow", Follow(1, offset, 0, epoch, metadata_id, nonce))
    asked = Follow(1, known.offset, 0, 1, known.metadata_id, known.nonce)
    await world.call("follow", asked)


@in_world(scenario_of)
async def test_a_later_epoch_of_the_same_metadata_is_outbid_once_and_another_ones_is_not(
    world: World,
) -> None:
    await world.start_controller()
    known = await world.metadata()
    with pytest.raises(MetadataRefused):
        await world.register(Followed("other", 50, 3))
    assert (await world.metadata()).epoch == 1
    with pytest.raises(MetadataRefused, match="its record at offset 0 is of controller epoch 1"):
        await world.register(Followed(known.metadata_id, 50, 1))
    assert (await world.metadata()).epoch == 51
    with pytest.raises(MetadataRefused):
        await world.register(Followed(known.metadata_id, 50, 1))
    assert (await world.metadata()).epoch == 51
