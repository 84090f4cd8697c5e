"""Transactional requests on their way to the coordinator, and markers on their way to leaders."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.controller.messages import ProducerIdBlock, TopicOutcome
from raylog.actors.gateway.handlers.add_partitions_to_txn import ASKED_AT_ONCE
from raylog.actors.gateway.handlers.table import FORWARDED, served_versions
from raylog.actors.names import GROUP, OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC
from raylog.actors.runtime.base import PeerLost
from raylog.actors.transaction.messages import (
    ADD_PARTITIONS,
    ANY_LEADER_EPOCH,
    COMPLETE_TRANSACTION,
    WRITE_MARKERS,
    AddPartitions,
    Marker,
)
from raylog.wire.api import ApiKey
from raylog.wire.codec import decode
from raylog.wire.errors import ErrorCode, NotLeaderOrFollower
from raylog.wire.frame import encode_response
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from raylog.wire.messages.registry import request_class
from raylog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run, topic_id
from tests.worlds.runtime import FakeLink, settle

HERE, ELSEWHERE = 1, 2


async def coordinator(world: World, role: str = TRANSACTION) -> FakeLink:
    """The coordinator of this broker is there."""
    link = world.link(f"{role} coordinator")
    await world.gateway.apply_coordinator(role, f"{role} coordinator")
    return link


async def state_topic(world: World, leader: int = HERE) -> None:
    new_id = await world.topic(TRANSACTIONS_TOPIC, 2, leader=leader)
    if leader == HERE:
        await world.route("replica", (new_id, 0), (new_id, 1))


def end(transactional_id: str = "t") -> EndTxnRequest:
    return EndTxnRequest(transactional_id=transactional_id, producer_id=5, producer_epoch=1)


# ---- finding and forwarding --------------------------------------------------------------


@in_world(run)
async def test_the_first_transactional_id_has_the_topic_made(world: World) -> None:
    await world.brokers(1, 2)

    async def create(asked: Any) -> list[TopicOutcome]:
        (new,) = asked.topics
        assert (new.name, new.num_partitions) == (TRANSACTIONS_TOPIC, 50)
        await state_topic(world, leader=ELSEWHERE)
        return [TopicOutcome(TRANSACTIONS_TOPIC, topic_id(TRANSACTIONS_TOPIC))]

    world.controller.script["create_topics"] = create
    answer = await world.client().ask(FindCoordinatorRequest(key="t", key_type=1), 3)
    assert (answer.error_code, answer.node_id) == (0, ELSEWHERE)


@pytest.mark.parametrize("version", ApiKey.END_TXN.versions)
@in_world(run)
async def test_requests_go_to_the_coordinator_as_they_came_and_answers_back(
    world: World, *, version: int
) -> None:
    link = await coordinator(world)
    client = world.client("10.0.0.7")
    client.send(end(), version)
    request = link.take(TRANSACTION)
    assert tuple(request.header) == (ApiKey.END_TXN, version, 7, "test", "/10.0.0.7")
    assert decode(EndTxnRequest, version, request.payload) == end()
    frame = encode_response(ApiKey.END_TXN, version, 7, EndTxnResponse(error_code=48))
    request.reply(None, b"".join(frame))
    (answer,) = client.received()
    assert answer.error_code == 48


@in_world(run)
async def test_ids_of_transactional_producers_come_from_the_coordinator(world: World) -> None:
    link = await coordinator(world)
    client = world.client()
    asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    client.send(asked, 5)
    request = link.take(TRANSACTION)
    assert decode(InitProducerIdRequest, 5, request.payload) == asked
    response = InitProducerIdResponse(producer_id=9, producer_epoch=3)
    request.reply(None, b"".join(encode_response(ApiKey.INIT_PRODUCER_ID, 5, 7, response)))
    assert client.received() == [response]


@in_world(run)
async def test_a_producer_may_be_the_first_to_mean_a_group(world: World) -> None:
    await world.brokers(1, 2)
    link = await coordinator(world)

    async def create(asked: Any) -> list[TopicOutcome]:
        assert [new.name for new in asked.topics] == [OFFSETS_TOPIC]
        assert not link.requests, "the coordinator could not tell the group's partition"
        await world.topic(OFFSETS_TOPIC, 2, leader=ELSEWHERE)
        return [TopicOutcome(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC))]

    world.controller.script["create_topics"] = create
    asked = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=5, producer_epoch=1, group_id="g"
    )
    client = world.client()
    for _ in range(2):
        client.send(asked, 4)
        await settle()
    assert [decode(AddOffsetsToTxnRequest, 4, one.payload) for one in link.requests] == [
        asked,
        asked,
    ]
    assert len(world.controller.asked) == 1


@pytest.mark.parametrize("enabled", [False, True])
def test_two_phase_commit_is_served_where_it_is_enabled(enabled: bool) -> None:
    served = served_versions(two_phase_commit=enabled)[ApiKey.INIT_PRODUCER_ID]
    assert served == range(7 if enabled else 6)


@pytest.mark.parametrize("leads", [True, False])
@in_world(run)
async def test_without_a_coordinator_producers_wait_or_look_elsewhere(
    world: World, *, leads: bool
) -> None:
    await world.brokers(1, 2)
    client = world.client()
    assert (await client.ask(end(), 3)).error_code == ErrorCode.NOT_COORDINATOR
    await state_topic(world, leader=HERE if leads else ELSEWHERE)
    expected = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if leads else ErrorCode.NOT_COORDINATOR
    assert (await client.ask(end(), 3)).error_code == expected
    described = await client.ask(DescribeTransactionsRequest(transactional_ids=["t", ""]), 0)
    codes = [one.error_code for one in described.transaction_states]
    assert codes == [expected, ErrorCode.INVALID_REQUEST]
    listed = await client.ask(ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 2)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if leads else ErrorCode.NONE
    unknown = [] if leads else ["Odd"]
    assert (listed.error_code, listed.unknown_state_filters) == (code, unknown)
    wrong = ListTransactionsRequest(transactional_id_pattern="(")
    answer = await client.ask(wrong, 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@in_world(run)
async def test_a_coordinator_that_ends_meanwhile_is_to_be_looked_for_again(world: World) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(end(), 4)
    link.take().fail(PeerLost("gone"))
    (answer,) = client.received()
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


_TRANSACTIONAL = [
    *(key for key, role in FORWARDED.items() if role == TRANSACTION),
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.WRITE_TXN_MARKERS,
]


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(key, version) for key in _TRANSACTIONAL for version in key.versions],
)
@in_world(run)
async def test_every_request_of_transactions_can_be_refused(
    world: World, *, api_key: ApiKey, version: int
) -> None:
    world.controller.script["allocate_producer_ids"] = lambda _: ProducerIdBlock(1, 1)
    world.controller.script["create_topics"] = lambda _: []
    answer: Any = await world.client().ask(request_class(api_key)(), version)
    assert answer is not None


# ---- partitions --------------------------------------------------------------------------


def several() -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=5,
                producer_epoch=1,
                verify_only=name == "u",
                topics=[AddPartitionsToTxnTopic(name="a", partitions=[0, 2])],
            )
            for name in ("t", "u")
        ]
    )


@pytest.mark.parametrize("version", [4, 5])
@in_world(run)
async def test_several_transactions_are_asked_about_at_once(world: World, *, version: int) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(several(), version)
    request = link.take(ADD_PARTITIONS)
    assert request.header == [
        AddPartitions("t", 5, 1, False, [("a", [0, 2])]),  # type: ignore[list-item]  # equal
        AddPartitions("u", 5, 1, True, [("a", [0, 2])]),  # type: ignore[list-item]  # equal
    ]
    request.reply([[0, 3], [120, 0]])
    (answer,) = client.received()
    found = {
        one.transactional_id: [
            (topic.name, part.partition_index, part.partition_error_code)
            for topic in one.topic_results
            for part in topic.results_by_partition
        ]
        for one in answer.results_by_transaction
    }
    assert found == {"t": [("a", 0, 0), ("a", 2, 3)], "u": [("a", 0, 120), ("a", 2, 0)]}


def many(count: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name="a", partitions=[0])]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=f"t{at}", producer_id=at, producer_epoch=1, topics=topics
            )
            for at in range(count)
        ]
    )


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (0, [0]),
        (1, [1]),
        (ASKED_AT_ONCE - 1, [ASKED_AT_ONCE - 1]),
        (ASKED_AT_ONCE, [ASKED_AT_ONCE]),
        (ASKED_AT_ONCE + 1, [ASKED_AT_ONCE, 1]),
        (2 * ASKED_AT_ONCE, [ASKED_AT_ONCE, ASKED_AT_ONCE]),
    ],
)
@in_world(run)
async def test_many_transactions_are_asked_about_in_parts(
    world: World, *, count: int, parts: list[int]
) -> None:
    """Whatever order the coordinator answers in, each transaction has its own answer."""

    link = await coordinator(world)
    client = world.client()
    client.send(many(count), 5)
    for _ in range(5):
        await settle()
    assert [len(one.header) for one in link.requests] == parts
    for request in reversed(link.requests):
        assert client.received() == [], "not before all are there"
        request.reply([[one.producer_id % 7] for one in request.header])
    (answer,) = client.received()
    assert [
        (one.transactional_id, topic.name, part.partition_index, part.partition_error_code)
        for one in answer.results_by_transaction
        for topic in one.topic_results
        for part in topic.results_by_partition
    ] == [(f"t{at}", "a", 0, at % 7) for at in range(count)]


@in_world(run)
async def test_transactions_of_a_lost_part_fail_alone(world: World) -> None:
    link = await coordinator(world)
    client = world.client()
    client.send(many(ASKED_AT_ONCE + 2), 5)
    for _ in range(5):
        await settle()
    link.take().fail(PeerLost("gone"))
    assert client.received() == []
    link.take().reply([[0], [3]])
    (answer,) = client.received()
    codes = [
        part.partition_error_code
        for one in answer.results_by_transaction
        for topic in one.topic_results
        for part in topic.results_by_partition
    ]
    assert codes == [ErrorCode.NOT_COORDINATOR] * ASKED_AT_ONCE + [0, 3]


@pytest.mark.parametrize("runs", [True, False])
@in_world(run)
async def test_several_transactions_without_their_coordinator(world: World, *, runs: bool) -> None:
    await world.brokers(1)
    client = world.client()
    if runs:
        link = await coordinator(world)
        client.send(several(), 5)
        link.take().fail(PeerLost("gone"))
        (answer,) = client.received()
    else:
        answer = await client.ask(several(), 5)
    assert {
        part.partition_error_code
        for one in answer.results_by_transaction
        for topic in one.topic_results
        for part in topic.results_by_partition
    } == {ErrorCode.NOT_COORDINATOR}


# ---- markers -----------------------------------------------------------------------------


def markers(*topics: tuple[str, list[int]]) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=5,
        producer_epoch=1,
        transaction_result=False,
        coordinator_epoch=4,
        transaction_version=2,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=at) for name, at in topics],
    )
    return WriteTxnMarkersRequest(markers=[marker])


def codes_of(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.markers[0].topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
@in_world(run)
async def test_markers_go_to_the_leaders_and_to_the_group_coordinator(
    world: World, *, version: int
) -> None:
    await world.brokers(1)
    topic = await world.topic("a", 2, leader=HERE)
    offsets = await world.topic(OFFSETS_TOPIC, 1, leader=HERE)
    replica = world.link("replica")
    await world.route("replica", (topic, 0), (topic, 1), (offsets, 0))
    group = await coordinator(world, GROUP)
    client = world.client()
    client.send(markers(("a", [0, 9]), (OFFSETS_TOPIC, [0]), ("none", [0])), version)
    asked = replica.take(WRITE_MARKERS)
    (marker,) = (Marker.of(one) for one in asked.header)
    marker_version = 2 if version == 2 else 0
    assert marker == Marker(5, 1, 4, False, marker_version, [(topic, 0, ANY_LEADER_EPOCH)])  # type: ignore[list-item]  # equal
    asked.reply([[ErrorCode.NONE]])
    group.take(COMPLETE_TRANSACTION).reply([[ErrorCode.NOT_COORDINATOR]])
    (answer,) = client.received()
    assert codes_of(answer) == {
        ("a", 0): ErrorCode.NONE,
        ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (OFFSETS_TOPIC, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@in_world(run)
async def test_markers_for_what_others_lead_or_only_others_hold(world: World) -> None:
    """Kafka looks for the partition first, and then for its leader."""

    await world.brokers(HERE, HERE + 1)
    await world.topic("theirs", leader=HERE + 1, replicas=(HERE + 1,))
    await world.topic("followed", leader=HERE + 1, replicas=(HERE + 1, HERE))
    await world.topic(OFFSETS_TOPIC, leader=HERE + 1, replicas=(HERE + 1,))
    client = world.client()
    client.send(markers(("theirs", [0]), ("followed", [0]), (OFFSETS_TOPIC, [0])), 1)
    (answer,) = client.received()
    assert codes_of(answer) == {
        ("theirs", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("followed", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (OFFSETS_TOPIC, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@in_world(run)
async def test_markers_that_nobody_takes(world: World) -> None:
    await world.brokers(1)
    topic = await world.topic("a", 1, leader=HERE)
    offsets = await world.topic(OFFSETS_TOPIC, 1, leader=HERE)
    replica = world.link("replica")
    await world.route("replica", (topic, 0), (offsets, 0))
    client = world.client()
    client.send(markers(("a", [0]), (OFFSETS_TOPIC, [0])), 1)
    replica.take().fail(NotLeaderOrFollower("moved"))
    (answer,) = client.received()
    assert set(codes_of(answer).values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
