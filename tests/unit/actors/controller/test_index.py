"""The controller's index finds what a full scan finds."""

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import DeleteTopics
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.index import PartitionSet, Why
from raylog.actors.metadata.records import NO_LEADER, PartitionChanged, Record
from tests.worlds.controller.machine import Controlled, assert_finds_all

T, U = TopicId(b"t" * 16), TopicId(b"u" * 16)


def test_a_set_of_partitions_is_in_order_topic_by_topic() -> None:
    found = PartitionSet()
    for topic_id, index in ((U, 5_000), (T, 3), (U, 0), (T, 3), (U, 64)):
        found.add(topic_id, index)
    assert list(found) == [(U, 0), (U, 64), (U, 5_000), (T, 3)]
    found.discard(U, 64)
    found.discard(T, 3)
    assert list(found) == [(U, 0), (U, 5_000)]
    found.discard_topic(T)
    found.discard_topic(U)
    assert not found


def world_and_topic() -> tuple[Controlled, TopicId]:
    world = Controlled(brokers=3)
    world.topic("other", (0, 1, 2), (2, 1, 0))
    return world, world.topic("t", (0, 1, 2), (1, 2, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"leader": 1},
        {"leader": 1, "isr": (1,)},
        {"isr": (0, 1), "elr": (2,)},
        {"leader": NO_LEADER, "isr": ()},
        {"leader": NO_LEADER, "isr": (1,)},
        {"leader": NO_LEADER, "isr": (), "elr": (0, 1)},
        {"leader": NO_LEADER, "isr": (), "last_known_elr": (0,)},
        {"replicas": (1, 2), "leader": 1, "isr": (1, 2)},
        {"replicas": (1, 2, 0)},
    ],
)
def test_index_follows_a_partition_change_and_its_reversal(changes: dict[str, object]) -> None:
    world, topic_id = world_and_topic()
    before = world.state(topic_id)
    record = PartitionChanged(topic_id, 0, **changes)  # type: ignore[arg-type]  # as they are typed
    back = PartitionChanged(
        topic_id,
        0,
        leader=before.leader,
        isr=before.isr,
        replicas=before.replicas,
        elr=(),
        last_known_elr=(),
    )
    for one in (record, back):
        world.carry(Decision([one], None))
        assert_finds_all(world.machine.index, world.image)
    world.carry(world.machine.topics.delete(DeleteTopics(["t"])))
    assert_finds_all(world.machine.index, world.image)


def test_a_snapshot_fills_it() -> None:
    world, topic_id = world_and_topic()
    changes: list[Record] = [
        PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=(1, 2)),
        PartitionChanged(topic_id, 1, leader=2),
    ]
    world.carry(Decision(changes, None))
    other = Controlled(brokers=0)
    other.machine.replay(world.image.snapshot())
    assert_finds_all(other.machine.index, world.image)
    assert other.machine.index.brokers(Why.ELIGIBLE) == [1, 2]


def test_names_that_differ_in_punctuation_are_found_while_their_topic_is_there() -> None:
    world = Controlled()
    index = world.machine.index
    for name in ("a.b_c", "plain"):
        world.topic(name, (0,))
    assert index.named_like("a_b.c") == "a.b_c"
    assert [index.named_like(one) for one in ("a.b_c", "a.b", "plain", "other")] == [None] * 4
    world.carry(world.machine.topics.delete(DeleteTopics(["a.b_c", "plain"])))
    assert index.named_like("a_b.c") is None
