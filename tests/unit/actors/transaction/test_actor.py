"""The coordinator's shell: loading, markers and their destinations, leadership changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.common_messages import RouteUpdate
from raylog.actors.coordination.lease import WAIT_MS
from raylog.actors.metadata.records import PartitionChanged, TopicDeleted
from raylog.actors.metrics.errors import codes_in
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, broker_name
from raylog.actors.transaction import hosting
from raylog.actors.transaction.actor import LISTED_AT_ONCE
from raylog.actors.transaction.hosting import PARKED_MS
from raylog.actors.transaction.markers import BACKOFF_MS
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.actors.transaction.rules import describing, shard
from raylog.actors.transaction.rules.filtering import ListTransactionsPart
from raylog.wire.errors import ErrorCode, InvalidRequest, KafkaStorageError, NotLeaderOrFollower
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raylog.wire.messages.list_transactions import ListTransactionsRequest
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import BROKER, Asking
from tests.worlds.metadata import broker_records, id_of
from tests.worlds.runtime import settle
from tests.worlds.transaction.actor import (
    CLUSTER,
    GROUPS,
    LOCAL,
    OTHER_BROKER,
    REMOTE,
    TransactionActorWorld,
    run,
)
from tests.worlds.transaction.shard import (
    FIRST,
    INIT_VERSION,
    SECOND,
    add_first,
    end,
    init,
    offsets,
)

EVERYWHERE = [TopicPartitions("t", [0, 1]), TopicPartitions("u", [0])]
T0, T1, U0 = (id_of("t"), 0), (id_of("t"), 1), (id_of("u"), 0)
OFFSETS = (id_of(OFFSETS_TOPIC), 0)


def adding(producer_id: int, epoch: int, *, verify: bool = False) -> AddPartitions:
    return AddPartitions("x", producer_id, epoch, verify, EVERYWHERE)


async def opened(world: TransactionActorWorld, *, with_offsets: bool = True) -> tuple[int, int]:
    """A transaction on all partitions and the offsets."""
    answer = await world.ask(init(), INIT_VERSION)
    assert not answer.error_code, ErrorCode(answer.error_code)
    holder = answer.producer_id, answer.producer_epoch
    assert await world.ask_add(adding(*holder)) == [0, 0, 0]
    if with_offsets:
        assert not (await world.ask(offsets(*holder), 4)).error_code
    return holder


async def state(world: TransactionActorWorld) -> str:
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    (found,) = (await world.ask(request, 0)).transaction_states
    return str(found.transaction_state) or ErrorCode(found.error_code).name


@in_world(run, TMP_PATH)
async def test_a_transaction_that_is_named_often_is_described_once(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    await opened(world)
    ids = ["x", "unknown", *["x"] * 3_000]
    answer = await world.ask(DescribeTransactionsRequest(transactional_ids=ids), 0)
    assert [one.transactional_id for one in answer.transaction_states] == ["x", "unknown"]


@in_world(run, TMP_PATH, level=1)
async def test_a_coordinator_that_may_have_a_successor_answers_what_the_log_confirms(
    world: TransactionActorWorld,
) -> None:
    """What it knows may be old: its successor may have begun another transaction."""
    await world.begin()
    holder = await opened(world)
    assert not (await world.ask(end(*holder), FIRST)).error_code
    await world.world.advance(5)
    await world.apply(*broker_records(BROKER, OTHER_BROKER))  # which report no heartbeats

    async def refused(sent: Asking) -> bool:
        await world.world.advance(WAIT_MS)
        return codes_in(sent.answer) == [ErrorCode.NOT_COORDINATOR]

    describing_it = DescribeTransactionsRequest(transactional_ids=["x"])
    answer = world.send(end(*holder), FIRST)
    assert await refused(answer)
    assert await refused(world.send(describing_it, 0))
    verified = world.send_add(adding(*holder, verify=True))
    await world.world.advance(WAIT_MS)
    assert verified == [[ErrorCode.NOT_COORDINATOR] * 3]
    assert await world.ask_add(adding(*holder)) == [0, 0, 0]
    assert codes_in(await world.ask(end(*holder), FIRST)) == []
    assert codes_in(await world.ask(init(), INIT_VERSION)) == []
    listed = await world.ask(ListTransactionsRequest(), 1)
    assert [one.transactional_id for one in listed.transaction_states] == ["x"]


@in_world(run, TMP_PATH)
async def test_a_transaction_from_beginning_to_end(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    answer = await world.ask(end(*holder), SECOND)
    assert (answer.error_code, answer.producer_epoch) == (0, 1)
    await world.world.advance(5)
    assert await state(world) == "CompleteCommit"
    assert world.outcomes() == {T0: [True], T1: [True], U0: [True], OFFSETS: [True]}
    assert [leader.frames for leader in world.leaders.values()] == [1, 1, 1]
    (marker,) = world.leaders[REMOTE].markers[U0]
    assert (marker.producer_epoch, marker.coordinator_epoch) == (1, 0)
    assert marker.transaction_version == 2


@in_world(run, TMP_PATH)
async def test_markers_of_one_turn_share_frames_and_addresses_are_remembered(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    for _ in range(2):
        frames = world.leaders[LOCAL].frames
        asked = []
        for name in "abc":
            answer = await world.ask(init(name), INIT_VERSION)
            holder = answer.producer_id, answer.producer_epoch
            one = AddPartitions(name, *holder, verify_only=False, topics=EVERYWHERE)
            assert await world.ask_add(one) == [0, 0, 0]
            request = end(*holder)
            request.transactional_id = name
            asked.append(request)
        for request in asked:
            world.send(request, SECOND)
        await world.world.advance(5)
        assert world.leaders[LOCAL].frames == frames + 1
        world.brokers[BROKER].leads = False
    listed = await world.ask(ListTransactionsRequest(state_filters=["CompleteCommit"]), 2)
    assert {one.transactional_id for one in listed.transaction_states} == set("abc")


@in_world(run, TMP_PATH)
async def test_a_leader_waits_for_the_markers_of_the_transaction_before(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.brokers[OTHER_BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    answer = world.send_add(adding(holder[0], 1))
    await world.world.advance(PARKED_MS / 2)
    assert answer == []
    world.brokers[OTHER_BROKER].leads = True
    await world.world.advance(PARKED_MS / 2)
    assert answer == [[0, 0, 0]]
    world.brokers[OTHER_BROKER].leads = False
    await world.ask(end(holder[0], 1), SECOND)
    waiting = world.send_add(adding(holder[0], 2))
    await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
    assert waiting == [[ErrorCode.NOT_COORDINATOR] * 3]


@in_world(run, TMP_PATH)
async def test_a_leader_does_not_wait_for_ever(world: TransactionActorWorld) -> None:
    """A partition without a leader may take a week; the producer asks again meanwhile."""

    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.brokers[OTHER_BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    for _ in range(3):
        answer = world.send_add(adding(holder[0], 1), adding(holder[0] + 1, 1))
        await world.world.advance(PARKED_MS + 1)
        assert answer == [[ErrorCode.CONCURRENT_TRANSACTIONS] * 3] * 2
    world.brokers[OTHER_BROKER].leads = True
    await world.world.advance(2_000)
    assert await state(world) == "CompleteCommit"
    assert await world.ask_add(adding(holder[0], 1)) == [0, 0, 0]


async def described(world: TransactionActorWorld) -> dict[str, list[int]]:
    """The partitions that are described."""
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    (found,) = (await world.ask(request, 0)).transaction_states
    return {one.topic: one.partitions for one in found.topics}


@in_world(run, TMP_PATH)
async def test_partitions_without_markers_are_described(world: TransactionActorWorld) -> None:
    """While markers are being written: the partitions that have none yet, as in Kafka."""

    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.brokers[OTHER_BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    await world.world.advance(5)
    assert (await state(world), await described(world)) == ("PrepareCommit", {"u": [0]})
    world.brokers[OTHER_BROKER].leads = True
    await world.world.advance(2_000)
    assert (await state(world), await described(world)) == ("CompleteCommit", {})


@in_world(run, TMP_PATH)
async def test_markers_are_sent_only_once_the_decision_is_durable(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.link.holding = True
    asking = world.send(end(*holder), SECOND)
    await world.world.advance(5)
    assert [asking.answer] == [None]
    assert not world.outcomes()
    world.link.release()
    await world.world.advance(5)
    assert asking.answer.error_code == 0
    assert world.outcomes() == {T0: [True], T1: [True], U0: [True], OFFSETS: [True]}


@in_world(run, TMP_PATH)
async def test_a_decision_that_was_not_written_is_none(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    world.log.failure = KafkaStorageError("the disk is full")
    answer = await world.ask(end(*holder), SECOND)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert not world.outcomes()
    world.log.failure = None
    await world.world.advance(1_000)
    assert await state(world) == "Ongoing"
    assert not (await world.ask(end(*holder, committed=False), SECOND)).error_code
    await world.world.advance(5)
    assert set(map(tuple, world.outcomes().values())) == {(False,)}


@in_world(run, TMP_PATH)
async def test_a_decision_whose_outcome_is_unknown_counts_if_it_is_in_the_log(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    world.log.failure, world.log.writes_failing = NotLeaderOrFollower("too late"), True
    assert (await world.ask(end(*holder), SECOND)).error_code
    world.log.failure = None
    await world.world.advance(1_000)
    again = await world.ask(end(*holder), SECOND)
    assert (again.error_code, again.producer_epoch) == (0, 1)
    assert set(map(tuple, world.outcomes().values())) == {(True,)}


@in_world(run, TMP_PATH)
async def test_leaders_that_refuse_are_asked_until_they_write(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world)
    world.leaders[LOCAL].codes = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    world.leaders[GROUPS].codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.brokers[OTHER_BROKER].leads = False
    assert not (await world.ask(end(*holder), SECOND)).error_code
    await world.world.advance(3_000)
    assert world.outcomes() == {T0: [True], T1: [True], OFFSETS: [True]}
    assert await state(world) == "PrepareCommit"
    world.brokers[OTHER_BROKER].leads = True
    await world.world.advance(1_000)
    assert world.outcomes()[U0] == [True]
    assert await state(world) == "CompleteCommit"
    assert world.leaders[LOCAL].markers[T0][0].coordinator_epoch == 0


@in_world(run, TMP_PATH)
async def test_a_lost_answer_is_asked_for_again_under_a_higher_epoch(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    remote = world.leaders[REMOTE]
    remote.link.answering = None
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    late = remote.link.take()
    remote.link.lose()
    remote.link.is_open = True
    remote.link.answering = remote._answer
    await world.world.advance(2_000)
    assert await state(world) == "CompleteCommit"
    (marker,) = remote.markers[U0]
    assert marker.coordinator_epoch == 1
    assert remote._answer(late) == [[ErrorCode.TRANSACTION_COORDINATOR_FENCED]]


@in_world(run, TMP_PATH)
async def test_a_leader_that_hangs_is_left_when_another_leads(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].link.answering = None
    await world.ask(end(*holder), SECOND)
    await world.world.advance(10_000)
    assert await state(world) == "PrepareCommit"
    await world.apply(PartitionChanged(id_of("u"), 0, leader=BROKER))
    await world.world.advance(1_000)
    assert await state(world) == "CompleteCommit"
    (marker,) = world.leaders[LOCAL].markers[U0]
    assert (marker.coordinator_epoch, marker.partitions[-1].leader_epoch) == (1, 1)
    world.leaders[REMOTE].link.take().reply([[0]])
    await settle()
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_a_deleted_topic_counts_as_done(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100
    await world.ask(end(*holder), SECOND)
    await world.world.advance(500)
    assert await state(world) == "PrepareCommit"
    await world.apply(TopicDeleted(id_of("u")))
    await world.world.advance(2_000)
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_a_newer_epoch_at_a_partition_counts_as_done(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].codes = [ErrorCode.INVALID_PRODUCER_EPOCH]
    await world.ask(end(*holder), SECOND)
    await world.world.advance(10)
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_fenced_markers_go_on_under_a_higher_epoch(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].codes = [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 2
    await world.ask(end(*holder), SECOND)
    await world.world.advance(1_000)
    assert await state(world) == "CompleteCommit"
    assert [one.coordinator_epoch for one in world.leaders[REMOTE].markers[U0]] == [2]


@in_world(run, TMP_PATH)
async def test_former_leader_sends_no_markers(world: TransactionActorWorld) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5
    await world.ask(end(*holder), SECOND)
    await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
    left = len(world.leaders[REMOTE].codes)
    await world.world.advance(5_000)
    assert len(world.leaders[REMOTE].codes) == left
    answer = await world.ask(end(*holder), SECOND)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert await world.ask_add(adding(*holder)) == [ErrorCode.NOT_COORDINATOR] * 3
    assert await state(world) == "NOT_COORDINATOR"
    listed = await world.ask(ListTransactionsRequest(), 2)
    assert (listed.error_code, listed.transaction_states) == (0, [])


@in_world(run, TMP_PATH)
async def test_many_transactions_are_listed_in_turns(
    world: TransactionActorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    await opened(world, with_offsets=False)
    host = next(iter(world.actor._shards))
    ids = host.shard.ids.transactions
    (known,) = ids.values()
    for number in range(2 * LISTED_AT_ONCE + 99):
        name = f"many-{number}"
        ids[name] = replace(known, transactional_id=name)
    seen: list[int] = []
    answer = describing.list_transactions

    def recording(found: Any, step: Any, asked: Any) -> None:
        seen.append(len(asked.request.transactional_ids))
        answer(found, step, asked)

    monkeypatch.setitem(shard._HANDLERS, ListTransactionsPart, recording)
    listed = await world.ask(ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 2)
    assert sum(seen) == len(ids)
    assert max(seen) == LISTED_AT_ONCE
    assert {one.transactional_id for one in listed.transaction_states} == set(ids)
    assert listed.unknown_state_filters == ["Odd"]


@in_world(run, TMP_PATH)
async def test_before_the_log_is_read_nothing_is_known(world: TransactionActorWorld) -> None:
    await world.start()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await world.ask(init(), INIT_VERSION)).error_code == loading
    assert await state(world) == loading.name
    answering, world.link.answering = world.link.answering, None
    await world.route()
    assert (await world.ask(ListTransactionsRequest(), 2)).error_code == loading
    assert await world.ask_add(adding(1, 0)) == [loading] * 3
    world.link.answering = answering
    for request in [one for one in world.link.requests if one.open]:
        assert answering is not None
        request.reply(answering(request))
    await world.world.advance(10)
    assert not (await world.ask(init(), INIT_VERSION)).error_code


@in_world(run, TMP_PATH)
async def test_a_removed_route_closes_the_shard(world: TransactionActorWorld) -> None:
    await world.begin()
    await opened(world)
    assert (await world.actor.ping())["partitions"] == [0]
    await world.actor.apply_routes(RouteUpdate([], [(id_of(TRANSACTIONS_TOPIC), 0)]))
    assert (await world.actor.ping())["partitions"] == []
    await world.route()
    assert await state(world) == "Ongoing"


@in_world(run, TMP_PATH)
async def test_verifications_of_many_transactions_share_a_frame(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world)
    unknown = AddPartitions("y", 1, 0, verify_only=True, topics=EVERYWHERE[:1])
    answer = world.send_add(adding(*holder, verify=True), unknown, adding(1, 0))
    await settle()
    unmapped = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert answer == [[0, 0, 0], [unmapped] * 2, [unmapped] * 3]


@in_world(
    run,
    TMP_PATH,
    transactional_id_expiration_ms="120000",
    transaction_remove_expired_transaction_cleanup_interval_ms="60000",
)
async def test_transactions_time_out_and_ids_expire_by_the_clock(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    await opened(world)
    await world.world.advance(59_000)
    assert await state(world) == "Ongoing"
    await world.world.advance(12_000)
    assert await state(world) == "CompleteAbort"
    assert set(map(tuple, world.outcomes().values())) == {(False,)}
    await world.world.advance(200_000)
    assert await state(world) == "TRANSACTIONAL_ID_NOT_FOUND"


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_all_ids_are_looked_at_some_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
        await world.begin()
        for name in "abc":
            answer = await world.ask(init(name), INIT_VERSION)
            holder = answer.producer_id, answer.producer_epoch
            one = AddPartitions(name, *holder, verify_only=False, topics=EVERYWHERE[:1])
            assert await world.ask_add(one) == [0, 0]
        await world.world.advance(75_000)
        listed = await world.ask(ListTransactionsRequest(state_filters=["CompleteAbort"]), 2)
        assert {one.transactional_id for one in listed.transaction_states} == set("abc")
        assert set(map(tuple, world.outcomes().values())) == {(False, False, False)}

    monkeypatch.setattr(hosting, "SWEEP_IDS", at_once)
    run(scenario, tmp_path)


@in_world(run, TMP_PATH)
async def test_unknown_request_kind_fails(world: TransactionActorWorld) -> None:
    await world.begin()
    failures: list[Exception] = []
    world._receive("fetch", None, memoryview(b""), lambda *_: None, failures.append)
    (failure,) = failures
    assert isinstance(failure, InvalidRequest)
    assert "does not answer fetch" in str(failure)


@in_world(run, TMP_PATH)
async def test_producer_ids_that_cannot_be_had_are_asked_for_again(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    world.brokers[BROKER].gives_ids = False
    answer = await world.ask(init(), INIT_VERSION)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.brokers[BROKER].gives_ids = True
    assert not (await world.ask(init(), INIT_VERSION)).error_code
    del world.world.peers["test-cluster/broker/1/0"]
    assert not (await world.ask(init("other"), INIT_VERSION)).error_code


@in_world(run, TMP_PATH, level=1)
async def test_clients_of_version_1(world: TransactionActorWorld) -> None:
    await world.begin()
    answer = await world.ask(init(), INIT_VERSION)
    holder = answer.producer_id, answer.producer_epoch
    assert await world.ask(add_first(*holder, 0, 1), 3) is not None
    assert (await world.ask(end(*holder), 3)).error_code == 0
    await world.world.advance(10)
    assert await state(world) == "CompleteCommit"
    (marker,) = world.leaders[LOCAL].markers[T0]
    assert (marker.producer_epoch, marker.transaction_version) == (0, 0)
    empty = init("")
    assert (await world.ask(empty, INIT_VERSION)).error_code == ErrorCode.INVALID_REQUEST


@in_world(run, TMP_PATH)
async def test_a_leader_that_refuses_is_asked_ever_more_slowly(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    holder = await opened(world, with_offsets=False)
    remote = world.leaders[REMOTE]
    remote.codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000
    await world.ask(end(*holder), SECOND)
    await world.world.advance(10_000)
    first_ms, longest_ms = BACKOFF_MS
    assert 10_000 // longest_ms <= remote.frames <= 10_000 // longest_ms + first_ms
    remote.codes.clear()
    await world.world.advance(longest_ms)
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_a_transaction_with_a_topic_that_no_client_may_write_to_ends(
    world: TransactionActorWorld,
) -> None:
    """Such as __transaction_state: a replica refuses its marker whenever it is asked."""

    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].codes = [ErrorCode.INVALID_TOPIC_EXCEPTION] * 1_000
    await world.ask(end(*holder), SECOND)
    await world.world.advance(1_000)
    assert await state(world) == "CompleteCommit"


@in_world(run, TMP_PATH)
async def test_a_leader_that_refuses_may_be_elsewhere_by_now(world: TransactionActorWorld) -> None:
    """Another process of the broker may lead in the same epoch."""

    await world.begin()
    holder = await opened(world, with_offsets=False)
    world.leaders[REMOTE].codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000
    await world.ask(end(*holder), SECOND)
    await world.world.advance(100)
    assert await state(world) == "PrepareCommit"
    world.brokers[OTHER_BROKER].address = LOCAL
    await world.world.advance(1_000)
    assert await state(world) == "CompleteCommit"
    assert world.leaders[LOCAL].markers[U0]


@in_world(run, TMP_PATH)
async def test_before_there_is_a_topic_of_transactions_nobody_coordinates_them(
    world: TransactionActorWorld,
) -> None:
    world.records = []
    await world.start()
    answer = await world.ask(init(), INIT_VERSION)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    named = DescribeTransactionsRequest(transactional_ids=["x", "y"])
    found = (await world.ask(named, 0)).transaction_states
    assert [one.transactional_id for one in found] == ["x", "y"]
    assert {one.error_code for one in found} == {ErrorCode.NOT_COORDINATOR}
    none = await world.ask(DescribeTransactionsRequest(transactional_ids=[]), 0)
    assert none.transaction_states == []


@in_world(run, TMP_PATH)
async def test_a_pattern_that_is_none_lists_nothing(world: TransactionActorWorld) -> None:
    await world.begin()
    await opened(world)
    listed = await world.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert listed.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert listed.transaction_states == []


@in_world(run, TMP_PATH)
async def test_producer_ids_are_asked_for_again_when_the_broker_is_back(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    name = broker_name(CLUSTER, BROKER)
    broker = world.world.peers.pop(name)
    for _ in range(2):
        answer = await world.ask(init(), INIT_VERSION)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.world.peers[name] = broker
    assert not (await world.ask(init(), INIT_VERSION)).error_code


@pytest.mark.parametrize(("moved", "aborted"), [(False, 3), (True, 1)])
def test_ids_of_a_shard_that_was_left_are_looked_at_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, moved: bool, aborted: int
) -> None:
    """Whoever coordinates them by now aborts what has timed out."""
    monkeypatch.setattr(hosting, "SWEEP_IDS", 1)
    seen: list[list[str]] = []
    sweep = shard.TransactionShard.abort_timed_out

    def looking(self: shard.TransactionShard, step: Any, ids: list[str]) -> None:
        seen.append(ids)
        sweep(self, step, ids)

    monkeypatch.setattr(shard.TransactionShard, "abort_timed_out", looking)

    async def scenario(world: TransactionActorWorld) -> None:
        await world.begin()
        for name in "abc":
            await world.ask(init(name), INIT_VERSION)
        host = world.actor._shards.get(0)
        assert host is not None
        host._sweep(host.shard, host.shard.transactional_ids(), looking)
        if moved:
            await world.apply(PartitionChanged(id_of(TRANSACTIONS_TOPIC), 0, leader=OTHER_BROKER))
        await world.world.advance(1)
        assert len(seen) == aborted

    run(scenario, tmp_path)
