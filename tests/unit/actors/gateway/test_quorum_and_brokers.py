"""DescribeQuorum and UnregisterBroker, forwarded to the controller."""

from __future__ import annotations

import pytest

from raylog.actors.controller.messages import QuorumDescription, QuorumReplica
from raylog.actors.metadata.records import BrokerRegistered, BrokerUnregistered
from raylog.wire.errors import BrokerIdNotRegistered, ErrorCode
from raylog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
    TopicData,
)
from raylog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from raylog.wire.uuids import to_base64
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.runtime import settle

DIRECTORIES = [bytes([number]) * 16 for number in range(1, 5)]
AHEAD, BEHIND, OBSERVING, UNKNOWN = (to_base64(one) for one in DIRECTORIES)
QUORUM = QuorumDescription(
    leader_id=1,
    leader_epoch=7,
    high_watermark=100,
    voters=[
        QuorumReplica(1, AHEAD, 101, 5_000, 4_999),
        QuorumReplica(2, BEHIND, 90, 4_000, 2_000),
    ],
    observers=[
        QuorumReplica(3, OBSERVING, 100, 4_500, 4_500),
        QuorumReplica(4, UNKNOWN, -1, -1),
    ],
)


def quorum_of(topic: str, *partitions: int) -> DescribeQuorumRequest:
    indexes = [RequestPartitionData(partition_index=one) for one in partitions]
    return DescribeQuorumRequest(topics=[RequestTopicData(topic_name=topic, partitions=indexes)])


def replica(number: int, end: int, version: int, fetched: int, caught_up: int) -> ReplicaState:
    state = ReplicaState(replica_id=number, log_end_offset=end)
    if version >= 1:
        state.last_fetch_timestamp, state.last_caught_up_timestamp = fetched, caught_up
    if version >= 2:
        state.replica_directory_id = DIRECTORIES[number - 1]
    return state


@pytest.mark.parametrize("version", range(3))
@in_world(run)
async def test_the_quorum_in_every_version(world: World, *, version: int) -> None:
    await world.brokers(1, 3)
    world.controller.script["describe_quorum"] = lambda _nothing: QUORUM
    answer = await world.client().ask(quorum_of("__cluster_metadata", 0), version)
    log = PartitionData(
        partition_index=0,
        leader_id=1,
        leader_epoch=7,
        high_watermark=100,
        current_voters=[
            replica(1, 101, version, 5_000, 4_999),
            replica(2, 90, version, 4_000, 2_000),
        ],
        observers=[replica(3, 100, version, 4_500, 4_500), replica(4, -1, version, -1, -1)],
    )
    listener = Listener(name="PLAINTEXT", host="host1", port=9001)
    assert answer == DescribeQuorumResponse(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[log])],
        nodes=[Node(node_id=1, listeners=[listener])] if version == 2 else [],
    )


@pytest.mark.parametrize(
    "request_", [quorum_of("other", 0), quorum_of("__cluster_metadata", 0, 1)], ids=str
)
@in_world(run)
async def test_there_is_one_log_to_describe(
    world: World, *, request_: DescribeQuorumRequest
) -> None:
    answer = await world.client().ask(request_, 2)
    (topic,) = answer.topics
    codes = [part.error_code for part in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(codes)
    assert not world.controller.asked


@in_world(run)
async def test_no_log_asked_for_is_no_log_described(world: World) -> None:
    answer = await world.client().ask(DescribeQuorumRequest(), 2)
    assert (answer.error_code, answer.topics) == (0, [])


@in_world(run)
async def test_the_controller_being_away_is_the_answer_s_error(world: World) -> None:
    world.controller.lost = 1_000_000
    client = world.client()
    client.send(quorum_of("__cluster_metadata", 0), 2)
    await world.runtime.advance(10_000)
    await settle()
    (answer,) = client.received()
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@in_world(run)
async def test_a_broker_is_forgotten_when_this_gateway_has_forgotten_it(world: World) -> None:
    await world.brokers(1, 2)
    world.controller.script["unregister_broker"] = lambda _broker_id: None
    client = world.client()
    client.send(UnregisterBrokerRequest(broker_id=2), 0)
    await settle()
    assert not client.received()
    await world.apply(BrokerUnregistered(2, 52))
    await settle()
    assert client.received() == [UnregisterBrokerResponse(error_message=None)]
    assert world.controller.asked == [("unregister_broker", 2)]


@in_world(run)
async def test_a_broker_that_runs_registers_again(world: World) -> None:
    await world.brokers(1, 2)
    world.controller.script["unregister_broker"] = lambda _broker_id: None
    client = world.client()
    client.send(UnregisterBrokerRequest(broker_id=2), 0)
    await settle()
    await world.apply(BrokerRegistered(2, 99, "host2", 9002, None, "d", "i", fenced=True))
    await settle()
    assert [answer.error_code for answer in client.received()] == [0]


def test_an_unknown_broker_cannot_be_forgotten() -> None:
    def refuse(broker_id: int) -> None:
        raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")

    async def scenario(world: World) -> None:
        world.controller.script["unregister_broker"] = refuse
        answer = await world.client().ask(UnregisterBrokerRequest(broker_id=77), 0)
        assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert answer.error_message == "Broker ID 77 is not currently registered"

    run(scenario)
