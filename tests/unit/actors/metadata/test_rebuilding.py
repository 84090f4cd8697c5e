"""Metadata from directories: who leads, what goes on above what was found, what is refused."""

from __future__ import annotations

import pytest

from raylog.actors.config import ResourceType
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.rebuilding import (
    EPOCHS_SKIPPED,
    KEEP_EVERYTHING,
    Choices,
    FoundBroker,
    FoundReplica,
    plan_rebuild,
    records_of,
)
from raylog.actors.metadata.records import NO_LEADER
from raylog.actors.ports import TopicId
from raylog.wire.uuids import to_base64

ORDERS, OTHER = TopicId(b"o" * 16), TopicId(b"p" * 16)


def replica(
    partition: int = 0,
    *,
    end: int = 10,
    epoch: int = 0,
    topic: str | None = "orders",
    topic_id: TopicId = ORDERS,
    settings: dict[str, str] | None = None,
    producer_id: int = -1,
    whole: bool = True,
) -> FoundReplica:
    return FoundReplica(
        topic_id, partition, topic, settings, 0, end, epoch, producer_id, whole, f"dir-{partition}"
    )


def broker(broker_id: int, *replicas: FoundReplica, epoch: int = 5, offset: int = 0) -> FoundBroker:
    return FoundBroker(broker_id, "cluster", f"d{broker_id}", epoch, offset, 3, replicas)


def image_of(*found: FoundBroker, choices: Choices | None = None) -> MetadataImage:
    plan = plan_rebuild(found, choices or Choices(), "new")
    assert plan.problems == ()
    image = MetadataImage()
    image.apply_update(-1, plan.offset, records_of(plan))
    return image


@pytest.mark.parametrize(
    ("copies", "leader"),
    [
        ({0: (4, 90), 1: (5, 80), 2: (5, 70)}, 1),  # the highest last epoch, then the longest log
        ({0: (5, 80), 1: (5, 81), 2: (4, 200)}, 1),
        ({0: (-1, 0), 1: (0, 1)}, 1),
        ({2: (3, 7), 1: (3, 7), 0: (3, 7)}, 0),
    ],
)
def test_the_highest_last_epoch_then_the_longest_log_leads(
    copies: dict[int, tuple[int, int]], leader: int
) -> None:
    found = [broker(one, replica(epoch=e, end=end)) for one, (e, end) in copies.items()]
    state = image_of(*found).topics[ORDERS].partitions[0]
    assert (state.replicas[0], state.isr, state.leader) == (leader, (leader,), NO_LEADER)
    assert set(state.replicas) == set(copies)


def test_equal_copies_lead_by_turns() -> None:
    found = [broker(one, *map(replica, range(6))) for one in (0, 1, 2)]
    partitions = image_of(*found).topics[ORDERS].partitions
    assert [one.isr for one in partitions] == [(0,), (1,), (2,), (0,), (1,), (2,)]


def test_epochs_offsets_and_producer_ids_go_on_above_all_that_was_found() -> None:
    image = image_of(
        broker(0, replica(epoch=7, producer_id=41), epoch=900),
        broker(1, replica(epoch=9, producer_id=4_999), epoch=20, offset=1_234),
    )
    assert image.topics[ORDERS].partitions[0].leader_epoch >= 9 + EPOCHS_SKIPPED
    assert image.offset > 1_234
    assert image.controller_epoch > 3
    assert image.next_producer_id > 4_999
    assert {one.broker_id: (one.broker_epoch, one.fenced) for one in image.brokers.values()} == {
        0: (900, True),
        1: (20, True),
    }


def test_three_brokers_vote_of_fewer_the_first() -> None:
    brokers = [broker(one, replica()) for one in (4, 2, 9, 7)]
    assert image_of(*brokers).voters == ((2, "d2"), (4, "d4"), (7, "d7"))
    assert image_of(*brokers[:2]).voters == ((2, "d2"),)


def test_settings_are_those_of_most_copies() -> None:
    image = image_of(
        broker(0, replica(0, settings={"retention.ms": "5"}), replica(1)),
        broker(1, replica(0, settings={"retention.ms": "7"})),
        broker(2, replica(0, settings={"retention.ms": "7"})),
    )
    assert image.configs_of(ResourceType.TOPIC, "orders") == {"retention.ms": "7"}


@pytest.mark.parametrize(
    ("topic", "settings"),
    [
        ("orders", KEEP_EVERYTHING),
        ("__consumer_offsets", {"cleanup.policy": "compact"}),
        ("__transaction_state", {"cleanup.policy": "compact"}),
    ],
)
def test_a_topic_whose_settings_are_not_known_keeps_everything(
    topic: str, settings: dict[str, str]
) -> None:
    image = image_of(broker(0, replica(topic=topic)))
    assert image.configs_of(ResourceType.TOPIC, topic) == settings


def test_settings_known_to_be_none_stay_none() -> None:
    image = image_of(broker(0, replica(settings={})))
    assert image.configs_of(ResourceType.TOPIC, "orders") == {}


def test_a_name_that_is_cut_is_asked_for() -> None:
    found = [broker(0, replica(topic=None))]
    (problem,) = plan_rebuild(found, Choices(), "new").problems
    assert f"--name {to_base64(ORDERS)}=NAME" in problem
    named = image_of(*found, choices=Choices(names={ORDERS: "whole"}))
    assert named.topics[ORDERS].name == "whole"


def test_one_name_with_two_ids_is_refused_until_one_is_left_out() -> None:
    found = [broker(0, replica()), broker(1, replica(topic_id=OTHER))]
    (problem,) = plan_rebuild(found, Choices(), "new").problems
    assert to_base64(ORDERS) in problem
    assert to_base64(OTHER) in problem
    image = image_of(*found, choices=Choices(excluded=frozenset([OTHER])))
    assert list(image.topics) == [ORDERS]


def test_a_partition_without_a_copy_begins_empty_only_where_that_is_accepted() -> None:
    found = [broker(0, replica(0), replica(2)), broker(1, replica(0), replica(2))]
    (problem,) = plan_rebuild(found, Choices(), "new").problems
    assert "no copy of 1" in problem
    image = image_of(*found, choices=Choices(accept_missing=True))
    state = image.topics[ORDERS].partitions[1]
    assert (set(state.replicas), state.isr) == ({0, 1}, state.replicas)


def test_a_damaged_leader_is_told() -> None:
    plan = plan_rebuild([broker(0, replica(end=5, whole=False))], Choices(), "new")
    assert not plan.topics[0].partitions[0].is_whole


def test_a_broker_that_never_registered_is_not_registered() -> None:
    assert image_of(broker(0, replica(), epoch=-1)).brokers == {}
