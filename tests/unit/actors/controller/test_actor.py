"""The controller's shell: when it answers, and what happens when the log is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from raylog.actors.config import ResourceType
from raylog.actors.controller import actor as controller_actor
from raylog.actors.controller import term
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import (
    HEARTBEAT,
    AddVoter,
    AllocateProducerIds,
    AlterConfigs,
    AlterOp,
    AlterPartitions,
    BrokerHeartbeat,
    ConfigAlteration,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    FeatureUpdate,
    Follow,
    IsrChange,
    IsrOutcome,
    MetadataUpdate,
    MorePartitions,
    NewTopic,
    OpenedReplica,
    PartitionsOpened,
    ProducerIdBlock,
    RegisterBroker,
    RemoveVoter,
    ReplicasLost,
    UpdateFeatures,
)
from raylog.actors.controller.rules import brokers
from raylog.actors.metadata.followed import require_agreement
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    LeaderChanged,
    PartitionCreated,
    Record,
    encode_record,
)
from raylog.actors.names import CONTROLLER, controller_name
from raylog.actors.peers import metadata_copies as snapshots
from raylog.actors.runtime.base import ActorSpec, PeerLost
from raylog.wire.errors import (
    ErrorCode,
    InvalidRequest,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import in_loop, in_world
from tests.worlds.metadata import take_in

NAME = controller_name(CLUSTER)
TIMEOUT_MS = 5_000


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that is under way; the test's time limit ends it otherwise."""
    while not holds():  # noqa: ASYNC110 - the actors raise no event for it
        await asyncio.sleep(0.001)


class World:
    """One voter and a controller."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.voters = VoterWorld(1, {CONTROLLER: ControllerActor})
        self.settings = settings or {}

    async def start(self) -> None:
        await self.voters.up(0)
        await self.start_controller()

    async def start_controller(self) -> None:
        args = {"cluster_id": CLUSTER, "broker_ids": [0], "settings": self.settings}
        await self.voters.runtime.spawn(ActorSpec(NAME, CONTROLLER, args))

    def term(self) -> term.Term:
        """The controller's, which serves."""
        found = self.controller()._term
        assert found is not None
        return found

    def controller(self) -> ControllerActor:
        actor = self.voters.world.resident(NAME).actor
        assert isinstance(actor, ControllerActor)
        return actor

    async def call(self, method: str, *args: Any) -> Any:
        """A call that is repeated until a controller serves."""
        while True:
            try:
                return await self.voters.runtime.call(NAME, method, *args, timeout_ms=TIMEOUT_MS)
            except NotController:
                await asyncio.sleep(0.001)

    async def call_once(self, method: str, *args: Any) -> Any:
        return await self.voters.runtime.call(NAME, method, *args, timeout_ms=TIMEOUT_MS)

    async def broker(self, broker_id: int = 0) -> int:
        """A registered, unfenced broker; its broker epoch."""
        registration = RegisterBroker(broker_id, CLUSTER, f"d{broker_id}", f"i{broker_id}", "h", 1)
        epoch: int = await self.call("register_broker", registration)
        self.epoch = epoch
        answer = await self.call("heartbeat", BrokerHeartbeat(broker_id, epoch, epoch + 1))
        assert answer[:3] == (False, False, epoch + 2), "after the record that unfences it"
        return epoch

    async def image(self, offset: int = 0) -> MetadataImage:
        """What a follower makes of the log."""
        image = MetadataImage()
        update: MetadataUpdate = await self.call("follow", Follow(9, offset, 0))
        assert take_in(image, update)
        return image


def scenario(
    story: Callable[[World], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    async def main() -> None:
        world = World(settings)
        await world.start()
        await story(world)
        assert world.voters.world.failures == []

    asyncio.run(main())


@in_loop
async def test_nothing_is_answered_before_an_epoch_is_won() -> None:
    world = World()
    await world.start_controller()
    with pytest.raises(NotController):
        await world.call_once("create_topics", CreateTopics([]))
    assert (await world.call_once("ping"))["serves"] is False
    await world.voters.up(0)
    assert await world.call("create_topics", CreateTopics([])) == []
    assert (await world.call_once("ping"))["epoch"] == 1


@in_world(scenario)
async def test_every_request_is_answered(world: World) -> None:
    epoch = await world.broker()
    (made,) = await world.call("create_topics", CreateTopics([NewTopic("t", 1, 1)]))
    (grown,) = await world.call("create_partitions", CreatePartitions([MorePartitions("t", 2)]))
    opened = [OpenedReplica(made.topic_id, 0, "a")]
    await world.call("partitions_opened", PartitionsOpened(0, epoch, opened))
    await world.call("replicas_lost", ReplicasLost(0, epoch, [(made.topic_id, 0)]))
    change = IsrChange(made.topic_id, 0, 0, 1, ((0, "a"),))
    (kept,) = await world.call("alter_partitions", AlterPartitions(0, epoch, [change]))
    assert kept == IsrOutcome(made.topic_id, 0, ErrorCode.NONE, None, 0, 0, 1, (0,))
    op = ConfigOp("retention.ms", AlterOp.SET, "5")
    (altered,) = await world.call(
        "alter_configs", AlterConfigs([ConfigAlteration(ResourceType.TOPIC, "t", [op])])
    )
    (updated,) = await world.call(
        "update_features", UpdateFeatures([FeatureUpdate("metadata.version", 30)])
    )
    block = await world.call("allocate_producer_ids", AllocateProducerIds(0, epoch))
    assert block == ProducerIdBlock(0, 1000)
    assert [one.error for one in (made, grown, altered, updated)] == [0, 0, 0, 0]
    image = await world.image()
    assert image.topics[made.topic_id].partitions[0].incarnations == {0: "a"}
    assert image.configs_of(ResourceType.TOPIC, "t") == {"retention.ms": "5"}
    (deleted,) = await world.call("delete_topics", DeleteTopics(["t"]))
    await world.call("unregister_broker", 0)
    assert deleted.error == 0
    assert (await world.image()).brokers == {}


@in_world(scenario)
async def test_an_answer_waits_for_the_sync_and_what_gathers_meanwhile_is_one_append(
    world: World,
) -> None:
    await world.broker()
    host = world.voters.hosts[0]
    released = asyncio.Event()

    arrived = asyncio.Event()

    async def gate() -> None:
        arrived.set()
        await released.wait()

    host.gate = gate
    before = len(host.appends)

    def creation(name: str) -> Coroutine[Any, Any, Any]:
        return world.call_once("create_topics", CreateTopics([NewTopic(name, 1, 1)]))

    tasks = [asyncio.ensure_future(creation("t0"))]
    await arrived.wait()
    tasks += [asyncio.ensure_future(creation(f"t{at}")) for at in range(1, 4)]
    # A refusal that rests on what is not committed yet waits as well.
    tasks.append(asyncio.ensure_future(creation("t0")))
    await until(lambda: len(world.term().machine.image.topics) == len(tasks) - 1)
    assert not any(task.done() for task in tasks)
    released.set()
    outcomes = [(await task)[0].error for task in tasks]
    assert outcomes == [0, 0, 0, 0, 36]
    sizes = [len(append.entries) for append in host.appends[before:]]
    assert sizes == [1, 3]


@pytest.mark.parametrize("ack_when_committed", [True, False])
@in_loop
async def test_voters_that_come_and_go_are_told_of_when_that_is_committed(
    ack_when_committed: bool,
) -> None:
    """An old version of AddRaftVoter is answered before, as by Apache Kafka."""

    world = World()
    world.voters = VoterWorld(2, {CONTROLLER: ControllerActor})
    world.voters.voters = ((0, "d0"),)
    await world.start()
    await world.voters.up(1)
    await world.broker(1)
    released = asyncio.Event()

    async def gate() -> None:
        if len(world.term().machine.image.voters) != before:
            await released.wait()

    for host in world.voters.hosts.values():
        host.gate = gate
    before = 1
    joining = AddVoter(1, "d1", TIMEOUT_MS, ack_when_committed=ack_when_committed)
    adding = asyncio.ensure_future(world.call_once("add_voter", joining))
    await until(lambda: len(world.term().machine.image.voters) == 2)
    if ack_when_committed:
        assert not adding.done()
    else:
        await adding
    released.set()
    await adding
    await world.term().until_committed(world.term().machine.image.offset)
    released.clear()
    before = 2
    removing = asyncio.ensure_future(world.call_once("remove_voter", RemoveVoter(1, "d1")))
    await until(lambda: len(world.term().machine.image.voters) == 1)
    assert not removing.done()
    released.set()
    await removing
    assert world.voters.world.failures == []


@in_world(scenario)
async def test_a_voter_that_has_promised_a_later_epoch_ends_the_term(world: World) -> None:
    """Only a voter's promise counts: it says that another controller has won a majority or may."""

    await world.broker(1)
    later = BrokerHeartbeat(1, world.epoch, 1 << 40, promised_epoch=99)
    await world.call_once("heartbeat", later)
    await world.broker(0)
    mine = BrokerHeartbeat(0, world.epoch, 1 << 40, promised_epoch=world.term().quorum.epoch)
    await world.call_once("heartbeat", mine)
    with pytest.raises(NotController):
        await world.call_once("heartbeat", mine._replace(promised_epoch=99))
    assert (await world.call_once("ping"))["serves"] is False


@in_world(scenario)
async def test_heartbeat_answer_waits_for_the_commit_of_its_records(world: World) -> None:
    registration = RegisterBroker(0, CLUSTER, "d0", "i0", "h", 1)
    epoch: int = await world.call("register_broker", registration)
    released = asyncio.Event()

    async def gate() -> None:
        await released.wait()

    world.voters.hosts[0].gate = gate
    beat = BrokerHeartbeat(0, epoch, epoch + 1)
    unfencing = asyncio.ensure_future(world.call_once("heartbeat", beat))
    await asyncio.sleep(0.01)
    assert not unfencing.done()
    plain = await world.call_once("heartbeat", beat)
    assert plain.offset == epoch + 2, "one that decides nothing waits for nobody"
    released.set()
    assert not (await unfencing).fenced


@in_world(scenario)
async def test_a_snapshot_is_reported_when_all_that_it_holds_is_committed(world: World) -> None:
    await world.broker()
    released = asyncio.Event()

    async def gate() -> None:
        await released.wait()

    world.voters.hosts[0].gate = gate
    creating = asyncio.ensure_future(
        world.call_once("create_topics", CreateTopics([NewTopic("t", 1, 1)]))
    )
    await asyncio.sleep(0.001)
    world.term().recent.clear()
    following = asyncio.ensure_future(world.call_once("follow", Follow(1, 0, 0)))
    await asyncio.sleep(0.01)
    assert not following.done()
    released.set()
    await creating
    assert (await following).to_offset == world.term().committed


@in_world(scenario)
async def test_waiting_follower_gets_not_controller_when_the_controller_stops(
    world: World,
) -> None:
    await world.broker()
    image = await world.image()
    waiting = asyncio.ensure_future(world.call_once("follow", Follow(1, image.offset, TIMEOUT_MS)))
    await asyncio.sleep(0.001)
    await world.controller().stop()
    with pytest.raises(NotController):
        await waiting


@in_world(scenario)
async def test_a_copy_that_cannot_join_leaves_room_for_another_try(world: World) -> None:
    await world.broker(1)
    for _ in range(2):
        with pytest.raises(RequestTimedOut, match="lagging behind"):
            await world.call_once("add_voter", AddVoter(1, "d1", 1))


@in_world(scenario)
async def test_a_follower_gets_what_it_lacks_or_waits_for_news(world: World) -> None:
    await world.broker()
    image = await world.image()
    waiting = asyncio.ensure_future(world.call_once("follow", Follow(1, image.offset, TIMEOUT_MS)))
    await asyncio.sleep(0.001)
    assert not waiting.done()
    await world.call("create_topics", CreateTopics([NewTopic("t", 2, 1)]))
    update: MetadataUpdate = await waiting
    assert (update.from_offset, update.to_offset) == (image.offset, image.offset + 3)
    assert take_in(image, update)
    assert image == await world.image()
    nothing = await world.call("follow", Follow(1, image.offset, 1))
    assert nothing == MetadataUpdate(image.offset, image.offset, [])


@in_world(scenario, {"metadata.log.max.record.bytes.between.snapshots": "1000"})
async def test_a_follower_that_is_one_record_behind_gets_that_record(world: World) -> None:
    """Whatever else there is, and though a snapshot has taken its place in the log."""

    await world.broker()
    await world.call("create_topics", CreateTopics([NewTopic("many", 3_000, 1)]))
    topics = CreateTopics([NewTopic("t", 1, 1)])
    await world.call("create_topics", topics)
    await until(lambda: world.voters.hosts[0].voter.state().start_offset > 3_000)
    end = world.term().committed
    update: MetadataUpdate = await world.call("follow", Follow(1, end - 1, 0))
    assert update[:2] == (end - 1, end)
    assert [type(one) for one in update.records] == [PartitionCreated]
    assert update.parts == ()


@pytest.mark.parametrize("offset", [0, 1_000])
@in_world(scenario)
async def test_a_follower_that_is_too_far_behind_or_ahead_gets_a_snapshot(
    world: World, *, offset: int
) -> None:
    await world.broker()
    world.term().recent.clear()
    update: MetadataUpdate = await world.call("follow", Follow(1, offset, 0))
    assert (update.from_offset, update.records) == (-1, [])
    image = MetadataImage()
    take_in(image, update)
    assert image == world.term().machine.image


@in_world(scenario)
async def test_a_controller_that_takes_over_knows_the_records_that_it_has_adopted(
    world: World,
) -> None:
    await world.broker()
    behind = MetadataImage()
    take_in(behind, await world.call("follow", Follow(1, 0, 0)))
    await world.call("create_topics", CreateTopics([NewTopic("t", 1, 1)]))
    await world.voters.runtime.kill(await world.voters.runtime.find(NAME))
    await world.start_controller()
    for offset in (behind.offset, 0):
        update: MetadataUpdate = await world.call("follow", Follow(1, offset, 0))
        assert update.from_offset == offset
    take_in(behind, await world.call("follow", Follow(1, behind.offset, 0)))
    assert behind == world.term().machine.image
    assert (behind.controller_epoch, list(behind.topic_ids)) == (2, ["t"])


def test_a_snapshot_is_encoded_once_for_all_who_need_it_and_changes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[object] = []

    def encode(record: Record) -> bytes:
        encoded.append(record)
        return encode_record(record)

    async def story(world: World) -> None:
        await world.broker()
        for at in range(5):
            await world.call("create_topics", CreateTopics([NewTopic(f"t{at}", 3, 1)]))
        serving = world.term()
        serving.recent.clear()
        known = len(list(serving.machine.image.snapshot()))
        asked = [
            asyncio.ensure_future(world.call_once("follow", Follow(one, 0, 0))) for one in (4, 5, 9)
        ]
        await asyncio.sleep(0)
        meanwhile = [
            world.call_once("create_topics", CreateTopics([NewTopic("later", 2, 1)])),
            world.call_once("delete_topics", DeleteTopics(["t3"])),
        ]
        await asyncio.gather(*meanwhile)
        updates = [
            *await asyncio.gather(*asked),
            *[await world.call_once("follow", Follow(one, 0, 0)) for one in (7, 8)],
        ]
        assert len(encoded) == known, "a later follower goes on from the same one"
        assert all(update == updates[0] for update in updates)
        image = MetadataImage()
        take_in(image, updates[0])
        assert set(image.topic_ids) == {f"t{at}" for at in range(5)}
        take_in(image, await world.call_once("follow", Follow(9, image.offset, 0)))
        assert image == serving.machine.image

    monkeypatch.setattr(snapshots, "SLICE_RECORDS", 1)
    monkeypatch.setattr(snapshots, "encode_record", encode)
    scenario(story)


@in_world(scenario)
async def test_a_snapshot_goes_as_far_as_the_broker_has_followed_before_its_restart(
    world: World,
) -> None:
    """One that is kept for others would look like metadata that has lost records."""

    await world.broker()
    serving = world.term()
    serving.recent.clear()
    first: MetadataUpdate = await world.call("follow", Follow(4, 0, 0))
    await world.call("create_topics", CreateTopics([NewTopic("later", 1, 1)]))
    followed = serving.machine.image.followed
    asked = Follow(1, 0, 0, followed.epoch, followed.metadata_id, followed.nonce, followed.offset)
    update: MetadataUpdate = await world.call("follow", asked)
    assert (first.from_offset, update.from_offset) == (-1, -1)
    assert first.to_offset < followed.offset <= update.to_offset
    image = MetadataImage()
    take_in(image, update)
    require_agreement(1, followed, image)


@in_world(scenario)
async def test_a_broker_that_has_followed_more_than_there_is_gets_what_there_is(
    world: World,
) -> None:
    await world.broker()
    serving = world.term()
    serving.recent.clear()
    end = serving.machine.image.offset
    update: MetadataUpdate = await world.call("follow", Follow(1, 0, 0, followed_offset=1_000))
    assert (update.from_offset, update.to_offset) == (-1, end)


def test_records_are_written_while_voters_are_given_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        await world.broker()
        for at in range(10):
            await world.call("create_topics", CreateTopics([NewTopic(f"t{at}", 1, 1)]))
        serving = world.term()
        serving.bytes_since_snapshot = 1 << 40
        appends = 0
        while world.voters.hosts[0].voter.state().start_offset == 0:
            await world.call_once("allocate_producer_ids", AllocateProducerIds(0, world.epoch))
            appends += 1
        assert appends > 3
        start_offset = world.voters.hosts[0].voter.state().start_offset
        assert start_offset < serving.committed
        await until(lambda: not serving.snapshotting)
        await world.voters.runtime.kill(await world.voters.runtime.find(NAME))
        await world.start_controller()
        behind = MetadataImage()
        while behind.offset < serving.committed:
            update = await world.call("follow", Follow(1, behind.offset, 0))
            take_in(behind, update)
        assert behind.topics == serving.machine.image.topics
        assert behind.next_producer_id == serving.machine.image.next_producer_id

    monkeypatch.setattr(snapshots, "SLICE_RECORDS", 1)
    scenario(story)


@in_world(scenario)
async def test_others_are_heard_while_a_broker_leaves_its_partitions(
    world: World, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker_id in (1, 0):
        await world.broker(broker_id)
    await world.call("create_topics", CreateTopics([NewTopic("t", 20, 2)]))
    (topic,) = world.term().machine.image.topics
    monkeypatch.setattr(brokers, "LEFT_AT_ONCE", 1)
    anew = RegisterBroker(1, CLUSTER, "d1", "i1, later", "h", 1)
    registering = asyncio.ensure_future(world.call_once("register_broker", anew))
    in_sync = set()
    while not registering.done():
        beat = BrokerHeartbeat(0, world.epoch, world.epoch + 1)
        assert not (await world.call_once("heartbeat", beat)).fenced
        partitions = world.term().machine.image.topics[topic].partitions
        in_sync.add(sum(1 in state.isr for state in partitions))
    assert len(in_sync) > 5
    assert in_sync >= {0}


def test_the_partitions_of_a_new_topic_are_reported_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        await world.broker()
        configs = {"retention.ms": "5", "segment.ms": "6"}
        topics = [NewTopic("a", 20, 1, configs=configs), NewTopic("b", 20, 1), NewTopic("c", 1, 1)]
        await world.call("create_topics", CreateTopics(topics))
        await world.call("create_partitions", CreatePartitions([MorePartitions("c", 30)]))
        image, updates = MetadataImage(), 0
        while image.offset < world.term().committed:
            update: MetadataUpdate = await world.call("follow", Follow(1, image.offset, 0))
            take_in(image, update)
            updates += 1
            counts = {topic.name: len(topic.partitions) for topic in image.topics.values()}
            assert counts.get("a", 20) == counts.get("b", 20) == 20
            assert counts.get("c", 1) in (1, 30)
        assert updates > 5
        assert counts == {"a": 20, "b": 20, "c": 30}

    monkeypatch.setattr(term, "FOLLOW_RECORDS_MAX", 2)
    scenario(story)


@in_world(scenario)
async def test_a_successor_has_everything_that_was_answered(world: World) -> None:
    await world.broker()
    for at in range(5):
        await world.call("create_topics", CreateTopics([NewTopic(f"t{at}", 1, 1)]))
    before = await world.image()
    await world.voters.runtime.kill(await world.voters.runtime.find(NAME))
    await world.start_controller()
    after = await world.image()
    assert after.topics == before.topics
    assert (after.controller_epoch, after.offset) == (2, before.offset + 1)


@pytest.mark.parametrize("broken", ["replay", "encode_record"])
def test_a_record_that_cannot_be_taken_in_reaches_no_voter(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("a mistake of ours")

    async def main() -> None:
        world = World()
        await world.start()
        await world.broker()
        serving = world.term()
        owner = serving.machine if broken == "replay" else controller_actor
        with monkeypatch.context() as patched:
            patched.setattr(owner, broken, mistaken)
            with pytest.raises(PeerLost):
                await world.call_once("create_topics", CreateTopics([NewTopic("t", 1, 1)]))
        assert serving.unwritten == []
        assert len(world.voters.world.failures) == 1
        await world.start_controller()
        assert (await world.image()).topics == {}

    asyncio.run(main())


@in_world(scenario)
async def test_when_the_voter_is_gone_waiters_are_notified_and_service_resumes_with_it(
    world: World,
) -> None:
    await world.broker()
    offset = (await world.image()).offset
    await world.voters.down(0)
    topic = CreateTopics([NewTopic("t", 1, 1)])
    asked = Follow(1, offset, TIMEOUT_MS)
    follower = asyncio.ensure_future(world.call_once("follow", asked))
    await asyncio.sleep(0)
    with pytest.raises(NotController, match="no majority"):
        await world.call_once("create_topics", topic)
    with pytest.raises(NotController):
        await follower
    await world.voters.up(0)
    (outcome,) = await world.call("create_topics", topic)
    assert outcome.error == 0
    assert (await world.image()).controller_epoch == 2


@in_world(scenario, {"broker.session.timeout.ms": "100", "broker.heartbeat.interval.ms": "20"})
async def test_a_silent_broker_is_fenced(world: World) -> None:
    epoch = await world.broker()
    offset = (await world.image()).offset
    update: MetadataUpdate = await world.call("follow", Follow(1, offset, TIMEOUT_MS))
    assert update.records == [BrokerFenced(0, epoch)]
    await world.broker(1)
    with pytest.raises(StaleBrokerEpoch):
        await world.call("heartbeat", BrokerHeartbeat(0, epoch + 100, 0))


@in_world(scenario, {"metadata.log.max.record.bytes.between.snapshots": "1000"})
async def test_a_snapshot_bounds_the_log(world: World) -> None:
    await world.broker()
    for at in range(30):
        await world.call("create_topics", CreateTopics([NewTopic(f"t{at}", 1, 1)]))
        await world.call("delete_topics", DeleteTopics([f"t{at}"]))
    state = world.voters.hosts[0].voter.state()
    assert state.start_offset > 40
    before = await world.image()
    await world.voters.down(0)
    await world.voters.up(0)
    await world.voters.runtime.kill(await world.voters.runtime.find(NAME))
    await world.start_controller()
    after = await world.image()
    assert after.brokers == before.brokers
    assert after.features_epoch == before.features_epoch
    assert after.offset == before.offset + 1


@in_world(scenario)
async def test_the_quorum_is_described(world: World) -> None:
    await world.broker(0)
    await world.broker(7)
    await world.call("follow", Follow(7, 3, 0))
    described = await world.call("describe_quorum")
    assert (described.leader_id, described.leader_epoch) == (0, 1)
    (voter,) = described.voters
    assert voter.log_end_offset == described.high_watermark
    (observer,) = described.observers
    assert (observer.broker_id, observer.log_end_offset) == (7, 3)
    assert observer.last_contact_ms > 0


@in_world(scenario)
async def test_the_log_begins_with_the_controllers_own_record(world: World) -> None:
    await world.broker()
    update: MetadataUpdate = await world.call("follow", Follow(1, 0, 0))
    assert update.from_offset == 0
    first = update.records[0]
    assert isinstance(first, LeaderChanged)
    assert first == LeaderChanged(1, NAME, first.nonce)
    assert first.nonce
    assert any(isinstance(record, BrokerRegistered) for record in update.records)
    await world.voters.world.stop()


@in_world(scenario)
async def test_heartbeats_come_over_links_and_nothing_else_does(world: World) -> None:
    epoch = await world.broker()
    link = await world.voters.runtime.connect(NAME)
    offset = (await world.image()).offset
    answer = await link.ask(HEARTBEAT, [0, epoch, offset, False])
    assert answer[:4] == [False, False, offset, 1]
    with pytest.raises(StaleBrokerEpoch):
        await link.ask(HEARTBEAT, [0, epoch + 1, offset, False])
    assert (await link.ask(HEARTBEAT, [0, epoch, offset, True]))[:3] == [True, True, offset + 2]
    assert (await world.image()).brokers[0].fenced
    with pytest.raises(InvalidRequest, match="serves no produce over links"):
        await link.ask("produce")
    link.close()
