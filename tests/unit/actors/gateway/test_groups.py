"""FindCoordinator, and requests of groups on their way to the coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.controller.messages import TopicOutcome
from raylog.actors.gateway.handlers.table import FORWARDED
from raylog.actors.metadata.records import FeatureChanged, PartitionChanged
from raylog.actors.names import GROUP, OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC
from raylog.actors.runtime.base import PeerLost
from raylog.wire.api import ApiKey
from raylog.wire.codec import decode
from raylog.wire.errors import CorruptMessage, ErrorCode
from raylog.wire.frame import encode_request, encode_response
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from raylog.wire.messages.registry import request_class
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.runtime import FakeLink, settle

HERE, ELSEWHERE = 1, 2
COORDINATOR = "coordinator"


async def coordinator(world: World) -> FakeLink:
    """The coordinator of this broker is there."""
    link = world.link(COORDINATOR)
    await world.gateway.apply_coordinator(GROUP, COORDINATOR)
    return link


async def offsets_topic(world: World, leader: int = HERE) -> None:
    new_id = await world.topic(OFFSETS_TOPIC, 2, leader=leader)
    if leader == HERE:
        await world.route("replica", (new_id, 0), (new_id, 1))


def beat(group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


# ---- finding -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
@in_world(run)
async def test_the_leader_of_a_groups_partition_coordinates_it(
    world: World, *, version: int
) -> None:
    await world.brokers(1, 2)
    await offsets_topic(world, leader=ELSEWHERE)
    request = FindCoordinatorRequest(key="g", key_type=0)
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=0)
    answer = await world.client().ask(request, version)
    if version >= 4:
        assert [one.key for one in answer.coordinators] == ["g", "h"]
        answer = answer.coordinators[0]
    assert (answer.error_code, answer.node_id) == (0, ELSEWHERE)
    assert (answer.host, answer.port) == ("host2", 9002)


@in_world(run)
async def test_the_first_group_has_the_topic_made(world: World) -> None:
    await world.brokers(1, 2)

    async def create(asked: Any) -> list[TopicOutcome]:
        (new,) = asked.topics
        assert (new.name, new.num_partitions, new.replication_factor) == (OFFSETS_TOPIC, 50, 2)
        await offsets_topic(world, leader=ELSEWHERE)
        return [TopicOutcome(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC))]

    world.controller.script["create_topics"] = create
    answer = await world.client().ask(FindCoordinatorRequest(key="g"), 3)
    assert (answer.error_code, answer.node_id) == (0, ELSEWHERE)


@in_world(run)
async def test_the_start_of_this_brokers_coordinator_is_waited_for(world: World) -> None:
    await world.brokers(1)
    await offsets_topic(world)
    client = world.client()
    client.send(FindCoordinatorRequest(key="g"), 3)
    await settle()
    assert client.received() == []
    await coordinator(world)
    await settle()
    (answer,) = client.received()
    assert answer.node_id == HERE
    world.link(COORDINATOR).lose()
    client.send(FindCoordinatorRequest(key="g"), 3)
    await world.runtime.advance(5_000)
    (answer,) = client.received()
    assert answer.node_id == HERE, "not for ever"


@in_world(run)
async def test_find_coordinator_waits_for_the_coordinator_of_this_broker(world: World) -> None:
    await world.brokers(1, 2)
    await offsets_topic(world)
    await world.apply(PartitionChanged(topic_id(OFFSETS_TOPIC), 0, leader=ELSEWHERE))
    client = world.client()
    client.send(FindCoordinatorRequest(coordinator_keys=list("abcdefgh")), 4)
    await settle()
    assert client.received() == []
    await coordinator(world)
    await settle()
    (answer,) = client.received()
    assert {one.node_id for one in answer.coordinators} == {HERE, ELSEWHERE}


@in_world(run)
async def test_a_topic_that_others_have_just_made_is_waited_for(world: World) -> None:
    await world.brokers(1, 2)
    world.controller.script["create_topics"] = lambda _asked: [
        TopicOutcome(OFFSETS_TOPIC, error=ErrorCode.TOPIC_ALREADY_EXISTS)
    ]
    client = world.client()
    client.send(FindCoordinatorRequest(key="g"), 3)
    await settle()
    assert client.received() == []
    await offsets_topic(world, leader=ELSEWHERE)
    await settle()
    (answer,) = client.received()
    assert (answer.error_code, answer.node_id) == (0, ELSEWHERE)
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_a_topic_that_cannot_be_made_is_not_waited_for(world: World) -> None:
    await world.brokers(1)
    world.controller.script["create_topics"] = lambda _asked: [
        TopicOutcome(OFFSETS_TOPIC, error=ErrorCode.INVALID_REPLICATION_FACTOR)
    ]
    answer = await world.client().ask(FindCoordinatorRequest(key="g"), 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("key", "key_type", "version", "error"),
    [
        ("g", 2, 6, ErrorCode.INVALID_REQUEST),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 2, 5, ErrorCode.INVALID_REQUEST),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 2, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("g", 9, 6, ErrorCode.INVALID_REQUEST),
    ],
)
@in_world(run)
async def test_find_coordinator_errors(
    world: World, *, key: str, key_type: int, version: int, error: ErrorCode
) -> None:
    await world.brokers(1)
    request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    (answer,) = (await world.client().ask(request, version)).coordinators
    assert (answer.error_code, answer.node_id, answer.port) == (error, -1, -1)
    assert answer.key == key


@in_world(run)
async def test_a_partition_without_a_live_leader(world: World) -> None:
    await world.brokers(1, 2, fenced=[2])
    await offsets_topic(world, leader=ELSEWHERE)
    answer = await world.client().ask(FindCoordinatorRequest(key="g"), 1)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.error_message


# ---- forwarding --------------------------------------------------------------------------


@in_world(run)
async def test_requests_go_to_the_coordinator_as_they_came_and_answers_back(world: World) -> None:
    link = await coordinator(world)
    client = world.client("10.0.0.7")
    client.send(beat(), 4)
    request = link.take(GROUP)
    assert tuple(request.header) == (ApiKey.HEARTBEAT, 4, 7, "test", "/10.0.0.7")
    assert decode(HeartbeatRequest, 4, request.payload) == beat()
    frame = encode_response(ApiKey.HEARTBEAT, 4, 7, HeartbeatResponse(error_code=27))
    request.reply(None, b"".join(frame))
    (answer,) = client.received()
    assert answer.error_code == 27


@in_world(run)
async def test_without_the_feature_consumers_of_kip_848_are_refused(world: World) -> None:
    link = await coordinator(world)
    await world.apply(FeatureChanged("group.version", 0, 1))
    client = world.client()
    beaten = await client.ask(ConsumerGroupHeartbeatRequest(group_id="g"), 1)
    assert beaten.error_code == ErrorCode.UNSUPPORTED_VERSION
    described = await client.ask(ConsumerGroupDescribeRequest(group_ids=["g", "h"]), 1)
    assert [(one.group_id, one.error_code) for one in described.groups] == [
        ("g", ErrorCode.UNSUPPORTED_VERSION),
        ("h", ErrorCode.UNSUPPORTED_VERSION),
    ]
    assert link.requests == []
    await world.apply(FeatureChanged("group.version", 1, 2))
    client.send(ConsumerGroupHeartbeatRequest(group_id="g"), 1)
    assert len(link.requests) == 1


@in_world(run)
async def test_request_that_the_coordinator_cannot_decode_closes_the_connection(
    world: World,
) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(beat(), 4)
    link.take().fail(CorruptMessage("cut"))
    assert client.transport.closed


@in_world(run)
async def test_undecodable_request_does_not_harm_others_when_the_coordinator_ends(
    world: World,
) -> None:
    link = await coordinator(world)
    hostile, other = world.client(), world.client()
    hostile.send_bytes(b"".join(encode_request(ApiKey.HEARTBEAT, 4, 7, "c", beat()))[:-3])
    hostile.send_bytes(b"\xff\xff\xff")
    other.send(beat(), 4)
    link.lose()
    assert hostile.transport.closed
    assert other.received()[0].error_code == ErrorCode.NOT_COORDINATOR


@in_world(run)
async def test_a_coordinator_that_ends_meanwhile_is_to_be_looked_for_again(world: World) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(beat(), 4)
    link.take().fail(PeerLost("gone"))
    (answer,) = client.received()
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("role_moves", [True, False])
@in_world(run)
async def test_without_a_coordinator_clients_wait_or_look_elsewhere(
    world: World, *, role_moves: bool
) -> None:
    await world.brokers(1, 2)
    client = world.client()
    fetch = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )

    async def code() -> ErrorCode:
        answer = await client.ask(fetch, 7)
        assert answer.topics[0].partitions[0].error_code == answer.error_code
        return ErrorCode(answer.error_code)

    assert await code() == ErrorCode.NOT_COORDINATOR
    await offsets_topic(world, leader=HERE if role_moves else ELSEWHERE)
    expected = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if role_moves else ErrorCode.NOT_COORDINATOR
    assert await code() == expected
    await coordinator(world)
    await world.gateway.apply_coordinator(GROUP, None)
    assert await code() == expected
    listed = await client.ask(ListGroupsRequest(), 5)
    unreachable = ErrorCode.COORDINATOR_NOT_AVAILABLE if role_moves else ErrorCode.NONE
    assert (listed.error_code, listed.groups) == (unreachable, [])


@pytest.mark.parametrize("role", [GROUP, TRANSACTION])
@in_world(run)
async def test_a_link_that_broke_is_opened_again(world: World, *, role: str) -> None:
    await world.brokers(1)
    link = world.link(COORDINATOR)
    await world.gateway.apply_coordinator(role, COORDINATOR)
    assert world.gateway.coordinators.link(role) is link
    link.lose()
    del world.runtime.links[COORDINATOR]
    assert world.gateway.coordinators.link(role) is None
    await world.runtime.advance(5_000)
    assert world.gateway.coordinators.link(role) is None
    again = world.link(COORDINATOR)
    assert again is not link
    await world.runtime.advance(1_000)
    assert world.gateway.coordinators.link(role) is again
    again.lose()
    await world.gateway.apply_coordinator(role, None)
    await world.runtime.advance(5_000)
    assert world.gateway.coordinators.link(role) is None, "nobody is to be reached"
    assert not world.runtime.pending_timers()


@pytest.mark.parametrize("role", [GROUP, TRANSACTION])
@in_world(run)
async def test_a_coordinator_that_could_not_be_reached_is_tried_again(
    world: World, *, role: str
) -> None:
    await world.brokers(1)
    await world.gateway.apply_coordinator(role, COORDINATOR)
    assert world.gateway.coordinators.link(role) is None
    link = world.link(COORDINATOR)
    await world.runtime.advance(1_000)
    assert world.gateway.coordinators.link(role) is link


@pytest.mark.parametrize(
    ("request_", "version", "topic", "role"),
    [
        (ListGroupsRequest(), 5, OFFSETS_TOPIC, GROUP),
        (ListTransactionsRequest(), 2, TRANSACTIONS_TOPIC, TRANSACTION),
    ],
)
@in_world(run)
async def test_listing_fails_while_a_coordinator_cannot_be_reached(
    world: World, *, request_: object, version: int, topic: str, role: str
) -> None:
    await world.brokers(1, 2)
    client = world.client()
    assert (await client.ask(request_, version)).error_code == ErrorCode.NONE
    new_id = await world.topic(topic, 2, leader=ELSEWHERE)
    assert (await client.ask(request_, version)).error_code == ErrorCode.NONE
    await world.apply(PartitionChanged(new_id, 1, leader=HERE))
    answer = await client.ask(request_, version)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    link = world.link(COORDINATOR)
    await world.gateway.apply_coordinator(role, COORDINATOR)
    client.send(request_, version)
    link.take().fail(PeerLost("gone"))
    (answer,) = client.received()
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (api_key, version)
        for api_key, role in FORWARDED.items()
        if role == GROUP
        for version in api_key.versions
    ],
)
@in_world(run)
async def test_every_request_of_groups_can_be_refused(
    world: World, *, api_key: ApiKey, version: int
) -> None:
    answer: Any = await world.client().ask(request_class(api_key)(), version)
    assert answer is not None
