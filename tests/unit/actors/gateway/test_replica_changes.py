"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.controller.messages import (
    AlterReassignments,
    ElectLeaders,
    ElectOutcome,
    ReassignOutcome,
    ReassignPartition,
)
from raylog.actors.gateway.context import TURN
from raylog.actors.gateway.handlers import alter_partition_reassignments
from raylog.actors.metadata.records import PartitionChanged, TopicDeleted
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from raylog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from raylog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import FakeClient, World, never, run, topic_id
from tests.worlds.runtime import settle

NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED


def answering(*outcomes: Any) -> Callable[[Any], list[Any]]:
    return lambda _asked: list(outcomes)


def election(topic: str, *partitions: int, kind: int = 0) -> ElectLeadersRequest:
    asked = [TopicPartitions(topic=topic, partitions=list(partitions))]
    return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5_000)


async def nothing_yet(client: FakeClient) -> None:
    await settle()
    assert not client.received()


# ---- ElectLeaders ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@in_world(run)
async def test_an_election_is_answered_when_it_is_seen_here(world: World, *, version: int) -> None:
    topic_id = await world.topic("a", 2, leader=2, replicas=(1, 2))
    world.controller.script["elect_leaders"] = answering(
        ElectOutcome("a", 0), ElectOutcome("a", 1, NOT_NEEDED, "not needed")
    )
    client = world.client()
    client.send(election("a", 0, 1), version)
    await nothing_yet(client)
    await world.apply(PartitionChanged(topic_id, 0, leader=1))
    await settle()
    results = [
        PartitionResult(partition_id=0, error_code=0, error_message=None),
        PartitionResult(partition_id=1, error_code=NOT_NEEDED, error_message="not needed"),
    ]
    assert client.received() == [
        ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic="a", partition_result=results)]
        )
    ]
    asked = ElectLeaders(False, [("a", 0), ("a", 1)], 5_000)
    assert world.controller.asked == [("elect_leaders", asked)]


@in_world(run)
async def test_an_unclean_election_is_seen_once_anybody_leads(world: World) -> None:
    topic_id = await world.topic("a", leader=-1, replicas=(1, 2))
    world.controller.script["elect_leaders"] = answering(ElectOutcome("a", 0))
    client = world.client()
    client.send(election("a", 0, kind=1), 2)
    await nothing_yet(client)
    await world.apply(PartitionChanged(topic_id, 0, leader=2, isr=(2,)))
    await settle()
    (answer,) = client.received()
    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    assert world.controller.asked[0][1].unclean


@in_world(run)
async def test_an_election_is_not_seen_while_another_than_the_preferred_replica_leads(
    world: World,
) -> None:
    topic_id = await world.topic("a", leader=-1, replicas=(1, 2))
    world.controller.script["elect_leaders"] = answering(ElectOutcome("a", 0))
    client = world.client()
    client.send(election("a", 0), 2)
    await world.apply(PartitionChanged(topic_id, 0, leader=2))
    await nothing_yet(client)
    await world.runtime.advance(4_999)
    await nothing_yet(client)
    await world.runtime.advance(1)
    assert len(client.received()) == 1, "answered all the same"


@in_world(run)
async def test_nobody_waits_for_the_partitions_of_a_topic_that_is_deleted(world: World) -> None:
    topic_id = await world.topic("a", leader=2, replicas=(1, 2))
    world.controller.script["elect_leaders"] = answering(ElectOutcome("a", 0))
    world.controller.script["alter_reassignments"] = answering(ReassignOutcome("a", 0))
    electing, moving = world.client(), world.client()
    electing.send(election("a", 0), 2)
    moving.send(moves((0, [3])), 1)
    for client in (electing, moving):
        await nothing_yet(client)
    await world.apply(TopicDeleted(topic_id))
    await settle()
    assert len(electing.received()) == len(moving.received()) == 1
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_an_election_everywhere_names_every_topic(world: World) -> None:
    await world.topic("a", leader=1)
    await world.topic("b", leader=1)
    world.controller.script["elect_leaders"] = answering(ElectOutcome("b", 0))
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000)
    answer = await world.client().ask(request, 2)
    found = {one.topic: len(one.partition_result) for one in answer.replica_election_results}
    assert found == {"a": 0, "b": 1}
    assert world.controller.asked == [("elect_leaders", ElectLeaders(False, None, 5_000))]


@pytest.mark.parametrize("version", range(3))
@in_world(run)
async def test_an_election_that_the_controller_does_not_answer(
    world: World, *, version: int
) -> None:
    world.controller.script["elect_leaders"] = never
    answer = await world.client().ask(election("a", 0, 3), version)
    late = ErrorCode.REQUEST_TIMED_OUT
    assert answer.error_code == (late if version else 0)
    (topic,) = answer.replica_election_results
    found = [(one.partition_id, one.error_code) for one in topic.partition_result]
    assert found == [(0, late), (3, late)]


@in_world(run)
async def test_an_unknown_kind_of_election(world: World) -> None:
    answer = await world.client().ask(election("a", 0, kind=5), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    (topic,) = answer.replica_election_results
    assert topic.partition_result[0].error_message == "Unknown election type 5"
    assert not world.controller.asked


# ---- AlterPartitionReassignments -------------------------------------------------------------


def moves(*moved: tuple[int, list[int] | None], **more: Any) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=at, replicas=to) for at, to in moved]
    topics = [ReassignableTopic(name="a", partitions=partitions)]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5_000, **more)


@pytest.mark.parametrize("version", range(2))
@in_world(run)
async def test_a_move_is_answered_when_it_is_seen_here(world: World, *, version: int) -> None:
    topic_id = await world.topic("a", 2, replicas=(1, 2))
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.controller.script["alter_reassignments"] = answering(
        ReassignOutcome("a", 0), ReassignOutcome("a", 1, refused, "no such broker")
    )
    client = world.client()
    client.send(moves((0, [2, 3]), (1, [9])), version)
    await nothing_yet(client)
    await world.apply(
        PartitionChanged(
            topic_id, 0, replicas=(2, 3, 1), adding_replicas=(3,), removing_replicas=(1,)
        )
    )
    await settle()
    results = [
        ReassignablePartitionResponse(partition_index=0, error_code=0, error_message=None),
        ReassignablePartitionResponse(
            partition_index=1, error_code=refused, error_message="no such broker"
        ),
    ]
    assert client.received() == [
        AlterPartitionReassignmentsResponse(
            error_message=None,
            responses=[ReassignableTopicResponse(name="a", partitions=results)],
        )
    ]
    asked = [ReassignPartition("a", 0, (2, 3)), ReassignPartition("a", 1, (9,))]
    assert world.controller.asked == [("alter_reassignments", AlterReassignments(asked))]


@in_world(run)
async def test_a_move_called_off_and_one_that_is_over_already(world: World) -> None:
    topic_id = await world.topic("a", 2, replicas=(1, 2))
    await world.apply(PartitionChanged(topic_id, 1, replicas=(3, 1, 2), adding_replicas=(3,)))
    outcomes = answering(ReassignOutcome("a", 0), ReassignOutcome("a", 1))
    world.controller.script["alter_reassignments"] = outcomes
    client = world.client()
    client.send(moves((0, [2, 1]), (1, None)), 1)
    await nothing_yet(client)
    await world.apply(PartitionChanged(topic_id, 1, replicas=(1, 2), adding_replicas=()))
    await settle()
    (answer,) = client.received()
    assert [one.error_code for one in answer.responses[0].partitions] == [0, 0]
    assert world.controller.asked[0][1].partitions[1].replicas is None


@in_world(run)
async def test_another_number_of_replicas_can_be_forbidden(world: World) -> None:
    await world.topic("a")
    world.controller.script["alter_reassignments"] = answering(
        ReassignOutcome("a", 0, ErrorCode.INVALID_REPLICATION_FACTOR)
    )
    request = moves((0, [1, 2]), allow_replication_factor_change=False)
    answer = await world.client().ask(request, 1)
    assert answer.allow_replication_factor_change is False
    assert world.controller.asked[0][1].allow_replication_factor_change is False


@in_world(run)
async def test_answers_have_the_topics_of_the_request_in_its_order(world: World) -> None:
    """A topic that is named twice is answered twice, one without partitions too."""

    one, two = ReassignOutcome("a", 0), ReassignOutcome("a", 1, ErrorCode.INVALID_REQUEST, "!")
    world.controller.script["alter_reassignments"] = answering(two, one)
    asked = [("a", [1]), ("none", []), ("a", [0])]
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=at, replicas=[]) for at in ids],
        )
        for name, ids in asked
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=1)
    answer = await world.client().ask(request, 1)
    found = [
        (one.name, [(part.partition_index, part.error_code) for part in one.partitions])
        for one in answer.responses
    ]
    assert found == [("a", [(1, ErrorCode.INVALID_REQUEST)]), ("none", []), ("a", [(0, 0)])]
    world.controller.script["elect_leaders"] = answering(
        ElectOutcome("a", 1, NOT_NEEDED, ""), ElectOutcome("a", 0, NOT_NEEDED, "")
    )
    partitions = [TopicPartitions(topic=name, partitions=ids) for name, ids in asked]
    elected = await world.client().ask(
        ElectLeadersRequest(topic_partitions=partitions, timeout_ms=1), 2
    )
    assert [
        (one.topic, [part.partition_id for part in one.partition_result])
        for one in elected.replica_election_results
    ] == asked


@in_world(run)
async def test_a_move_that_the_controller_does_not_answer(world: World) -> None:
    world.controller.script["alter_reassignments"] = never
    answer = await world.client().ask(moves((0, [1])), 1)
    assert (answer.error_code, answer.responses) == (ErrorCode.REQUEST_TIMED_OUT, [])


# ---- ListPartitionReassignments --------------------------------------------------------------


@in_world(run)
async def test_moves_under_way_are_listed(world: World) -> None:
    topic_id = await world.topic("a", 3, replicas=(1, 2))
    await world.topic("b", replicas=(1, 2))
    change = PartitionChanged(
        topic_id, 1, replicas=(3, 2, 1), adding_replicas=(3,), removing_replicas=(1,)
    )
    await world.apply(change)
    client = world.client()
    moving = OngoingTopicReassignment(
        name="a",
        partitions=[
            OngoingPartitionReassignment(
                partition_index=1,
                replicas=[3, 2, 1],
                adding_replicas=[3],
                removing_replicas=[1],
            )
        ],
    )
    everything = await client.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (everything.error_code, everything.topics) == (0, [moving])
    wanted = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        for name, indexes in (("nope", [0]), ("b", [0]), ("a", [0, 1, 7]))
    ]
    some = await client.ask(ListPartitionReassignmentsRequest(topics=wanted), 0)
    assert some.topics == [moving]
    twice = [ListPartitionReassignmentsTopics(name="a", partition_indexes=[1, 1])]
    both = await client.ask(ListPartitionReassignmentsRequest(topics=twice), 0)
    assert both.topics[0].partitions == moving.partitions * 2
    others = [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 2])]
    assert not (await client.ask(ListPartitionReassignmentsRequest(topics=others), 0)).topics


@pytest.mark.parametrize("is_deleted", [False, True])
@in_world(run)
async def test_topics_may_change_while_the_moves_of_all_are_listed(
    world: World, *, is_deleted: bool
) -> None:
    for number in range(2 * TURN):
        await world.topic(f"t{number}")
    client = world.client()
    client.send(ListPartitionReassignmentsRequest(topics=None), 0)
    assert not client.received(), "it takes several turns"
    if is_deleted:
        await world.apply(TopicDeleted(topic_id("t0")))
    else:
        await world.topic("new")
    await settle()
    assert client.received()


@pytest.mark.parametrize(("count", "code"), [(2, ErrorCode.NONE), (3, ErrorCode.POLICY_VIOLATION)])
def test_a_request_that_moves_too_many_partitions_moves_none(
    count: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_partition_reassignments, "REASSIGNED_MAX", 2)

    async def scenario(world: World) -> None:
        world.controller.script["alter_reassignments"] = answering()
        topics = [
            ReassignableTopic(
                name=f"t{n}", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
            )
            for n in range(count)
        ]
        asked = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5_000)
        answer = await world.client().ask(asked, 0)
        assert answer.error_code == code
        assert bool(world.controller.asked) is (code is ErrorCode.NONE)

    run(scenario)
