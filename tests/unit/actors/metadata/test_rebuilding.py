"""Metadata rebuilt from directories: leaders, epochs and ids above those found, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.broker.rules.directories import directory_name
from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.found import FoundBroker, FoundReplica
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.rebuilding import (
    EPOCHS_SKIPPED,
    NAMED_MAX,
    OFFSETS_SKIPPED,
    PARTITION_MAX,
    PRODUCER_IDS_SKIPPED,
    Choices,
    plan_rebuild,
    records_of,
)
from raylog.actors.metadata.records import (
    NO_LEADER,
    ClusterNamed,
    LeaderChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    encode_record,
)
from raylog.wire.uuids import to_base64

ORDERS, OTHER = TopicId(b"o" * 16), TopicId(b"p" * 16)


def replica(
    partition: int = 0,
    *,
    end: int = 10,
    epoch: int = 0,
    topic: str | None = "orders",
    topic_id: TopicId = ORDERS,
    producer_id: int = -1,
    whole: bool = True,
    **more: Any,
) -> FoundReplica:
    return FoundReplica(
        topic_id=topic_id,
        partition=partition,
        topic=topic,
        settings=None,
        log_start_offset=0,
        log_end_offset=end,
        last_epoch=epoch,
        highest_producer_id=producer_id,
        is_whole=whole,
        **{"directory": directory_name(topic or "whole", (topic_id, partition)), **more},
    )


def broker(broker_id: int, *replicas: FoundReplica, epoch: int = 5, offset: int = 0) -> FoundBroker:
    return FoundBroker(broker_id, "cluster", f"d{broker_id}", epoch, offset, 3, replicas)


def image_of(
    *found: FoundBroker, choices: Choices | None = None, left: MetadataImage | None = None
) -> MetadataImage:
    plan = plan_rebuild(found, choices or Choices(), "new", left)
    assert plan.problems == ()
    image = MetadataImage()
    image.apply_update(-1, plan.offset, records_of(plan))
    return image


def copy_of_metadata(*records: Record) -> MetadataImage:
    image = MetadataImage()
    image.apply_update(-1, 1_000, [LeaderChanged(3), ClusterNamed("cluster", "old"), *records])
    return image


def orders(*replicas: tuple[int, ...]) -> list[Record]:
    """The topic, with the replicas of each partition."""
    made = [PartitionCreated(ORDERS, at, one, one, one[0]) for at, one in enumerate(replicas)]
    return [TopicCreated(ORDERS, "orders"), *made]


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


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("noted", ["epoch", "offset"])
def test_the_metadata_goes_on_above_what_any_broker_has_noted(at: int, noted: str) -> None:
    """Whichever it is, and in whichever of the two places."""
    found = [broker(one, replica()) for one in range(3)]
    found[at] = broker(at, replica(), **{noted: 10_000})
    assert image_of(*found).offset >= 10_000 + OFFSETS_SKIPPED


def test_three_brokers_vote_of_fewer_the_first() -> None:
    brokers = [broker(one, replica()) for one in (4, 2, 9, 7)]
    assert image_of(*brokers).voters == ((2, "d2"), (4, "d4"), (7, "d7"))
    assert image_of(*brokers[:2]).voters == ((2, "d2"),)


def test_a_name_that_is_cut_is_asked_for() -> None:
    found = [broker(0, replica(topic=None))]
    (problem,) = plan_rebuild(found, Choices(), "new").problems
    assert f"--name {to_base64(ORDERS)}=NAME" in problem
    named = image_of(*found, choices=Choices(names={ORDERS: "whole"}))
    assert named.topics[ORDERS].name == "whole"


def test_an_id_with_two_names_is_reported_until_one_is_chosen() -> None:
    found = [broker(0, replica(topic="orders")), broker(1, replica(1, topic="bills"))]
    problem, *_ = plan_rebuild(found, Choices(), "new").problems
    assert problem == f"topic id {to_base64(ORDERS)} has several names: bills, orders"
    chosen = plan_rebuild(found, Choices(names={ORDERS: "bills"}), "new")
    assert not [one for one in chosen.problems if "several names" in one]


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


def test_a_damaged_leader_is_reported() -> None:
    plan = plan_rebuild([broker(0, replica(end=5, whole=False))], Choices(), "new")
    assert not plan.topics[0].partitions[0].is_whole


def test_whole_copies_go_before_equal_ones_that_are_not() -> None:
    found = [broker(0, replica(whole=False)), broker(1, replica())]
    (partition,) = plan_rebuild(found, Choices(), "new").topics[0].partitions
    assert (partition.leader, partition.is_whole) == (1, True)


def test_every_copy_had_been_open_so_that_a_directory_that_is_gone_is_missed() -> None:
    found = [broker(0, replica(0), replica(2)), broker(1, replica(0))]
    partitions = image_of(*found, choices=Choices(accept_missing=True)).topics[ORDERS].partitions
    assert [set(one.incarnations) for one in partitions] == [{0, 1}, set(), {0}]


def test_a_broker_that_should_have_a_copy_and_has_none_is_given_one() -> None:
    left = copy_of_metadata(*orders((1, 0, 2)))
    (state,) = image_of(broker(0, replica()), broker(1), left=left).topics[ORDERS].partitions
    assert (state.replicas, state.isr) == ((0, 1), (0,))
    assert set(state.incarnations) == {0, 1}


# ---- how many partitions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "left", "choices", "count"),
    [
        ((6, 4), None, Choices(), 6),  # it has grown: the highest counts
        ((0, 4), orders(*[(0,)] * 5), Choices(), 5),
        ((0, 0), None, Choices(partitions={"orders": 3}), 3),
        ((4, 4), None, Choices(partitions={"orders": 3}), 4),
    ],
)
def test_partitions_without_a_copy_are_missed_and_begin_empty_where_that_is_accepted(
    reported: tuple[int, int], left: list[Record] | None, choices: Choices, count: int
) -> None:
    found = [broker(0, replica(0, partitions=reported[0]), replica(1, partitions=reported[1]))]
    image = None if left is None else copy_of_metadata(*left)
    (problem,) = plan_rebuild(found, choices, "new", image).problems
    missing = ", ".join(map(str, range(2, count)))
    assert f"topic orders has {count} partitions, and there is no copy of {missing}:" in problem
    accepted = Choices(accept_missing=True, partitions=choices.partitions)
    partitions = image_of(*found, choices=accepted, left=image).topics[ORDERS].partitions
    assert [one.isr for one in partitions] == [(0,)] * count


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_have_as_many_partitions_as_by_default_if_nobody_tells(topic: str) -> None:
    found = [broker(0, replica(0, topic=topic), replica(48, topic=topic))]
    plan = plan_rebuild(found, Choices(), "new")
    assert len(plan.topics[0].partitions) == 50
    (problem,) = plan.problems
    assert f"no copy of {', '.join(map(str, range(1, 1 + NAMED_MAX)))} and 28 more" in problem
    assert any(f"--partitions {topic}=NUMBER" in note for note in plan.notes)
    few = [broker(0, *(replica(at, topic=topic, partitions=5) for at in range(5)))]
    assert len(image_of(*few).topics[ORDERS].partitions) == 5


def test_a_number_that_nobody_tells_is_noted() -> None:
    plan = plan_rebuild([broker(0, replica())], Choices(), "new")
    assert plan.problems == ()
    (note,) = [one for one in plan.notes if "--partitions TOPIC=NUMBER" in one]
    assert note.endswith(": orders")


def test_topics_without_a_directory_are_reported() -> None:
    left = copy_of_metadata(*orders((0,)), TopicCreated(OTHER, "gone"))
    plan = plan_rebuild([broker(0, replica(partitions=1))], Choices(), "new", left)
    (note,) = plan.notes
    assert note.endswith("left out: gone")
    choices = Choices(excluded=frozenset([OTHER]))
    assert plan_rebuild([broker(0, replica(partitions=1))], choices, "new", left).notes == ()


# ---- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "..", "", "a/b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    found = [broker(0, replica(topic=name, directory=directory_name("whole", (ORDERS, 0))))]
    problem, *_ = plan_rebuild(found, Choices(), "new").problems
    assert f"cannot be called {name!r}" in problem
    assert f"--name {to_base64(ORDERS)}=NAME" in problem
    assert "whole" in image_of(*found, choices=Choices(names={ORDERS: "whole"})).topic_ids


def test_a_directory_in_which_no_broker_would_look_is_reported() -> None:
    belongs = directory_name("orders", (ORDERS, 0))
    found = [broker(0, replica(directory=directory_name("orders", (ORDERS, 1))))]
    (problem,) = plan_rebuild(found, Choices(), "new").problems
    assert f"belongs into {belongs}" in problem


def test_a_name_that_does_not_fit_its_directories_is_reported() -> None:
    choices = Choices(names={ORDERS: "another"})
    (problem,) = plan_rebuild([broker(0, replica())], choices, "new").problems
    assert "the name is wrong" in problem


def test_a_partition_whose_number_is_absurd_is_refused_and_fills_no_memory() -> None:
    found = [broker(0, replica(), replica(9_999_999_999), replica(PARTITION_MAX + 1))]
    plan = plan_rebuild(found, Choices(accept_missing=True), "new")
    assert [f"--exclude {to_base64(ORDERS)}" in one for one in plan.problems] == [True, True]
    assert [len(one.partitions) for one in plan.topics] == [1]


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**31 - 10, 2**30 + 1])
def test_a_leader_epoch_that_nobody_reaches_is_refused(epoch: int) -> None:
    (problem,) = plan_rebuild([broker(0, replica(epoch=epoch))], Choices(), "new").problems
    assert f"with leader epoch {epoch}" in problem
    left_out = Choices(excluded=frozenset([ORDERS]))
    assert plan_rebuild([broker(0, replica(epoch=epoch))], left_out, "new").problems == ()


@pytest.mark.parametrize(
    ("broker_epoch", "offset", "epoch"), [(2**63 - 1, 5, 3), (5, 2**63 - 1, 3), (5, 5, 2**31 - 1)]
)
def test_notes_that_no_cluster_reaches_are_refused(
    broker_epoch: int, offset: int, epoch: int
) -> None:
    found = FoundBroker(0, "cluster", "d0", broker_epoch, offset, epoch, (replica(),))
    (problem,) = plan_rebuild([found], Choices(), "new").problems
    assert "damaged" in problem


def test_producer_ids_that_no_cluster_gave_out_do_not_count() -> None:
    strange = 2**63 - 1
    found = [broker(0, replica(producer_id=41, strange_producer_id=strange))]
    found += [broker(1, replica(producer_id=strange))]
    plan = plan_rebuild(found, Choices(), "new")
    assert plan.next_producer_id == 41 + PRODUCER_IDS_SKIPPED
    assert any(str(strange) in note for note in plan.notes)
    assert all(map(encode_record, records_of(plan)))
    alone = replica(producer_id=strange, strange_producer_id=strange)
    plan = plan_rebuild([broker(0, alone)], Choices(), "new")
    assert plan.next_producer_id == -1 + PRODUCER_IDS_SKIPPED, "ids begin with 0"


def test_producer_ids_go_on_above_those_of_a_copy_of_the_metadata() -> None:
    left = copy_of_metadata(*orders((0,)), ProducerIdsAllocated(0, 5, 5_000_000))
    assert image_of(broker(0, replica(producer_id=7)), left=left).next_producer_id > 5_000_000


def test_an_older_copy_of_the_metadata_is_put_to_use_for_what_it_knows() -> None:
    cut = replica(topic=None, directory=directory_name("orders", (ORDERS, 0)))
    found = FoundBroker(0, "cluster", "d0", 5, 2_000, 4, (cut,), Followed("old", 4, 2_000))
    plan = plan_rebuild([found], Choices(), "new", copy_of_metadata(*orders((0,), (1,))))
    assert [one.name for one in plan.topics] == ["orders"]
    (problem,) = plan.problems
    assert "has 2 partitions" in problem


def test_a_broker_that_never_registered_is_not_registered() -> None:
    assert image_of(broker(0, replica(), epoch=-1)).brokers == {}


def test_a_broker_that_was_not_given_has_to_be_given_up() -> None:
    """Topics that only it has are in no plan."""
    found = [replace(broker(0, replica()), voters=(0, 1))]
    left = image_of(broker(0), broker(2))
    plan = plan_rebuild(found, Choices(), "new", left)
    assert [one.split(",")[0] for one in plan.problems] == [
        "broker 1 was in the cluster",
        "broker 2 was in the cluster",
    ]
    assert not plan_rebuild(found, Choices(without=frozenset((1, 2))), "new", left).problems
