"""The image: the result of applying records."""

import msgpack

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.endpoints import Endpoint
from raylog.actors.metadata.image import BrokerRegistration, MetadataImage, PartitionState, Topic
from raylog.actors.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterNamed,
    ConfigChanged,
    FeatureChanged,
    LeaderChanged,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
    VotersChanged,
    decode_record,
    encode_record,
)

AT = (Endpoint("PLAINTEXT", "h", 1),)
T = TopicId(b"t" * 16)
U = TopicId(b"u" * 16)


def registered(broker_id: int, epoch: int, *, fenced: bool = False) -> BrokerRegistered:
    return BrokerRegistered(
        broker_id=broker_id,
        broker_epoch=epoch,
        host="h",
        port=1,
        rack="r",
        directory_id=f"d{broker_id}",
        incarnation="i",
        fenced=fenced,
        build="b",
        node_id="n",
    )


HISTORY: list[Record] = [
    LeaderChanged(3),
    ClusterNamed("c"),
    VotersChanged(((0, "d0"),)),
    registered(0, 3),
    registered(1, 4, fenced=True),
    BrokerUnfenced(1, 4),
    registered(2, 5),
    BrokerFenced(2, 5),
    BrokerShuttingDown(1, 4),
    TopicCreated(T, "t"),
    PartitionCreated(T, 0, (0, 1), (0, 1), 0),
    PartitionCreated(T, 1, (1, 0), (1,), 1),
    TopicCreated(U, "u"),
    PartitionCreated(U, 0, (0,), (0,), 0),
    ConfigChanged(ResourceType.TOPIC, "t", "retention.ms", "5"),
    ConfigChanged(ResourceType.TOPIC, "u", "retention.ms", "6"),
    ConfigChanged(ResourceType.BROKER, "", "max.connections", "7"),
    ConfigChanged(ResourceType.BROKER, "", "max.connections", None),
    ConfigChanged(ResourceType.BROKER, "", "max.connections", "0"),
    ConfigChanged(ResourceType.TOPIC, "t", "of.a.newer.build", " x "),
    PartitionChanged(T, 0, leader=1, isr=(1,), incarnations={1: "x"}),
    PartitionChanged(T, 0, incarnations={0: "y"}),
    TopicDeleted(U),
    FeatureChanged("f", 2, 0),
    FeatureChanged("g", 1, 1),
    FeatureChanged("g", 0, 2),
    ProducerIdsAllocated(0, 3, 1000),
]


def image_of(records: list[Record]) -> MetadataImage:
    image = MetadataImage()
    image.apply_all(records)
    return image


def test_records_add_up() -> None:
    def broker(broker_id: int, epoch: int, *, fenced: bool, ending: bool) -> BrokerRegistration:
        return BrokerRegistration(
            broker_id, epoch, AT, "r", f"d{broker_id}", "i", fenced, "b", "n", ending
        )

    assert image_of(HISTORY) == MetadataImage(
        offset=len(HISTORY),
        controller_epoch=3,
        cluster_id="c",
        voters=((0, "d0"),),
        brokers={
            0: broker(0, 3, fenced=False, ending=False),
            1: broker(1, 4, fenced=False, ending=True),
            2: broker(2, 5, fenced=True, ending=False),
        },
        topics={
            T: Topic(
                T,
                "t",
                [
                    PartitionState((0, 1), (1,), 1, 1, 2, {1: "x", 0: "y"}),
                    PartitionState((1, 0), (1,), 1, 0, 0, {}),
                ],
            )
        },
        topic_ids={"t": T},
        configs={(2, "t"): {"retention.ms": "5"}},
        refused={(4, ""): {"max.connections": "0"}, (2, "t"): {"of.a.newer.build": " x "}},
        features={"f": 2, "g": 0},
        features_epoch=2,
        next_producer_id=1000,
    )


def test_a_snapshot_adds_up_to_the_same() -> None:
    image = image_of(HISTORY)
    copy = MetadataImage()
    assert copy.apply_update(-1, image.offset, image.snapshot())
    assert copy == image
    copy.apply(PartitionChanged(T, 0, incarnations={0: "z"}))
    assert image.topics[T].partitions[0].incarnations[0] == "y"


def test_a_snapshot_does_not_change_with_the_image() -> None:
    image = image_of(HISTORY)
    before = image_of(HISTORY)
    snapshot = image.snapshot()
    image.apply_all(
        [
            PartitionChanged(T, 0, leader=0, isr=(0,), incarnations={0: "later"}),
            PartitionCreated(T, 2, (0,), (0,), 0),
            BrokerFenced(0, 3),
            BrokerUnregistered(2, 5),
            ConfigChanged(ResourceType.TOPIC, "t", "retention.ms", "7"),
            FeatureChanged("g", 1, 3),
            TopicCreated(U, "u2"),
            ProducerIdsAllocated(0, 3, 5_000),
        ]
    )
    assert image.partition(T, 0) == PartitionState((0, 1), (0,), 0, 2, 3, {1: "x", 0: "later"})
    copy = MetadataImage()
    copy.apply_update(-1, snapshot.offset, snapshot)
    assert copy == before
    image.apply(TopicDeleted(T))
    assert next(iter(snapshot)) == LeaderChanged(3, terms=((3, 0, 0),))
    again = MetadataImage()
    again.apply_update(-1, snapshot.offset, snapshot)
    assert again == before


def test_an_image_that_becomes_another_goes_on_by_itself() -> None:
    image, whole = MetadataImage(), image_of(HISTORY)
    topics = whole.topics
    image.become(whole)
    assert image == image_of(HISTORY)
    assert image.topics is topics
    image.apply(PartitionChanged(T, 1, isr=(1, 0)))
    assert image.topics[T].partitions[1].isr == (1, 0)


def test_an_update_that_is_old_or_leaves_a_gap_changes_nothing() -> None:
    image = image_of(HISTORY[:3])
    assert not image.apply_update(4, 5, [registered(0, 3)])
    assert not image.apply_update(0, 1, [LeaderChanged(9)])
    assert image == image_of(HISTORY[:3])
    assert image.apply_update(3, 4, [registered(0, 3)])
    assert image == image_of(HISTORY[:4])


def test_a_snapshot_replaces_everything() -> None:
    image = image_of(HISTORY)
    assert image.apply_update(-1, 9, [LeaderChanged(8)])
    assert image == MetadataImage(offset=9, controller_epoch=8)


def test_unregistered_brokers_are_forgotten() -> None:
    image = image_of([*HISTORY, BrokerUnregistered(2, 5)])
    assert sorted(image.brokers) == [0, 1]


def test_lookups_in_the_image() -> None:
    image = image_of(HISTORY)
    assert [broker.broker_id for broker in image.live_brokers()] == [0]
    assert image.topic("t") is image.topics[T]
    assert image.topic("u") is None
    assert image.partition(T, 1) is image.topics[T].partitions[1]
    assert image.partition(T, 2) is None
    assert image.partition(T, -1) is None
    assert image.partition(U, 0) is None
    assert [(key, index) for key, index, _ in image.partitions_on(0)] == [(T, 0), (T, 1)]
    assert image.configs_of(ResourceType.TOPIC, "t") == {"retention.ms": "5"}
    assert image.configs_of(ResourceType.BROKER, "") == {}


def test_a_broker_of_an_older_build_has_one_listener() -> None:
    older = BrokerRegistered(1, 5, "h", 9092, None, "d", "i", fenced=False, build="b", node_id="n")
    bytes_of_version_3 = msgpack.packb([4, 3, *older[:-1]])
    broker = image_of([decode_record(bytes_of_version_3)]).brokers[1]
    assert broker.endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
    assert broker.endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "h", 9092)
    assert broker.endpoint("X") is None


def test_a_snapshot_has_every_endpoint_and_none_of_a_broker_without() -> None:
    endpoints = (("X", "in", 1), ("Y", "out", 2))
    image = image_of(
        [
            BrokerRegistered(1, 0, "in", 1, None, "d", "i", False, endpoints=endpoints),
            BrokerRegistered(2, 1, "", 0, None, "d", "i", True),
        ]
    )
    again = image_of([decode_record(encode_record(one)) for one in image.snapshot()])
    assert again.brokers == image.brokers
    assert again.brokers[1].endpoint("Y") == Endpoint("Y", "out", 2)
    assert again.brokers[2].endpoints == ()
