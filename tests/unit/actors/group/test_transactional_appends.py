"""Transactional offsets and markers: written to the log, and read back from it."""

import pytest

from raylog.actors.common_messages import RouteUpdate
from raylog.actors.config import ResourceType
from raylog.actors.metadata.records import ConfigChanged
from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.wire.control import decode_end_txn_marker
from raylog.wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerEpoch,
    MessageTooLarge,
    NetworkException,
    NotCoordinator,
    NotLeaderOrFollower,
    TransactionCoordinatorFenced,
)
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.wire.records import NO_SEQUENCE, decode_batch, iter_batches
from tests.unit.actors.group.test_actor import code, fetching, offsets
from tests.unit.actors.group.test_offsets import committing, deleting
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, run
from tests.worlds.group.pending_offsets import PRODUCER_ID, committing_in, marker, outcomes
from tests.worlds.metadata import id_of
from tests.worlds.runtime import settle

LATEST = 5
OTHER = PRODUCER_ID + 1
ADDED_BEFORE = 4
VERIFIED = "transaction.partition.verification.enable"
"""The last version whose clients add the partition themselves."""


async def unstable(world: CoordinatorWorld, group: str = "g") -> set[int]:
    """Partitions whose offsets may still change, of those with a committed one."""
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
    )
    (found,) = (await world.ask(asked, 8)).groups
    return {
        one.partition_index
        for topic in found.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    }


async def commit_in(world: CoordinatorWorld, version: int = LATEST, **changes: object) -> str:
    """One offset of a transaction; what becomes of it."""
    request = committing_in({0: 5}, **changes)  # type: ignore[arg-type]  # as given
    ((_, _, name),) = outcomes(await world.ask(request, version))
    return name


# ---- into the log ------------------------------------------------------------------------


@in_world(run, TMP_PATH)
async def test_offsets_are_one_batch_of_the_producer_and_the_marker_ends_them(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await world.ask(committing_in({0: 5, 1: 6}, epoch=3), LATEST)
    assert await offsets(world) == {}
    assert await world.end(marker(epoch=4, coordinator_epoch=9, version=2)) == [["NONE"]]
    assert await offsets(world) == {0: 5, 1: 6}
    (first, data), (second, control) = iter_batches(world.log.bytes())
    assert (first.producer_id, first.producer_epoch) == (PRODUCER_ID, 3)
    assert (first.base_sequence, first.is_transactional) == (NO_SEQUENCE, True)
    assert len(decode_batch(data)) == 2
    assert (second.is_control, second.producer_epoch) == (True, 4)
    ended = decode_end_txn_marker(decode_batch(control)[0])
    assert ended is not None
    assert (ended.is_commit, ended.coordinator_epoch) == (True, 9)


@in_world(run, TMP_PATH)
async def test_each_commit_is_an_append_of_its_own_in_order(world: CoordinatorWorld) -> None:
    await world.begin()
    asked = [
        world.send(committing({0: 1}), 9),
        world.send(committing({1: 1}), 9),
        world.send(committing_in({0: 2, 1: 2}), LATEST),
        world.send(committing_in({0: 3}, producer_id=OTHER), LATEST),
        world.send(committing({0: 4}), 9),
    ]
    marking = world.mark(marker())
    await world.runtime.advance(1)
    assert world.log.batches == [2, 2, 1, 1, 1]
    assert {code(one.answer) for one in asked} == {"NONE"}
    assert marking.codes == [[0]]
    assert await offsets(world) == {0: 4, 1: 2}


@in_world(run, TMP_PATH)
async def test_a_marker_counts_and_is_answered_when_it_is_durable(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    await commit_in(world)
    world.link.holding = True
    marking = world.mark(marker())
    await world.runtime.advance(5)
    assert not marking.is_answered
    reading = world.send(fetching(), 8)
    world.link.release()
    await world.runtime.advance(5)
    assert marking.codes == [[0]]
    assert reading.answer.groups[0].topics[0].partitions[0].committed_offset == 1
    assert await offsets(world) == {0: 5}


@in_world(run, TMP_PATH)
async def test_offsets_behind_a_marker_on_its_way_belong_to_the_next_transaction(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await commit_in(world)
    world.link.holding = True
    world.mark(marker(epoch=1, version=2))
    next_one = world.send(committing_in({0: 9, 1: 9}, epoch=1), LATEST)
    world.link.release()
    await world.runtime.advance(5)
    assert outcomes(next_one.answer) == [("t", 0, "NONE"), ("t", 1, "NONE")]
    assert await offsets(world) == {0: 5}
    assert await unstable(world) == {0}


# ---- what the log refuses ----------------------------------------------------------------


@in_world(run, TMP_PATH)
async def test_a_fenced_producer_fails_alone(world: CoordinatorWorld) -> None:
    """INVALID_PRODUCER_EPOCH: the log has seen a newer epoch; all others go on."""

    await world.begin()
    await world.ask(committing({0: 1}), 9)
    world.log.epochs[PRODUCER_ID] = 2
    fenced = world.send(committing_in({0: 5, 1: 5}, epoch=1), LATEST)
    others = [
        world.send(committing_in({1: 6}, producer_id=OTHER), LATEST),
        world.send(committing({2: 7}), 9),
    ]
    reading = world.send(fetching(), 8)
    await world.runtime.advance(5)
    assert {name for _, _, name in outcomes(fenced.answer)} == {"INVALID_PRODUCER_EPOCH"}
    assert [code(one.answer) for one in others] == ["NONE", "NONE"]
    assert code(reading.answer) == "NONE"
    assert await unstable(world) == set()
    await world.end(marker(producer_id=OTHER))
    assert await offsets(world) == {0: 1, 1: 6, 2: 7}
    claims = [kind for kind in world.link.kinds() if kind == "claim"]
    assert len(claims) == 1, "nothing was loaded again"


@in_world(run, TMP_PATH)
async def test_a_batch_that_is_too_large_fails_alone(world: CoordinatorWorld) -> None:
    await world.begin()
    world.log.failure = MessageTooLarge("too large")
    assert await commit_in(world) == "UNKNOWN_SERVER_ERROR"
    world.log.failure = None
    assert await offsets(world) == {}
    listed = await world.ask(ListGroupsRequest(), 4)
    assert listed.groups == []


@pytest.mark.parametrize("refusal", [InvalidProducerEpoch, TransactionCoordinatorFenced])
@in_world(run, TMP_PATH)
async def test_a_refused_marker_ends_nothing(
    world: CoordinatorWorld, *, refusal: type[InvalidProducerEpoch | TransactionCoordinatorFenced]
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    await commit_in(world)
    world.log.failure = refusal("older than what was seen")
    assert await world.end(marker()) == [[refusal.code.name]]
    world.log.failure = None
    assert await unstable(world) == {0}
    assert await world.end(marker()) == [["NONE"]]
    assert await offsets(world) == {0: 5}


@in_world(run, TMP_PATH)
async def test_in_version_2_the_end_has_a_higher_epoch(world: CoordinatorWorld) -> None:
    """KIP-890: a marker that comes late must not end the next transaction."""

    await world.begin()
    await commit_in(world, epoch=0)
    assert await world.end(marker(epoch=1, version=2)) == [["NONE"]]
    assert await world.end(marker(epoch=1, version=2)) == [["NONE"]], "repeated: harmless"
    await commit_in(world, epoch=1)
    late = await world.end(marker(epoch=1, version=2, committed=False))
    assert late == [["INVALID_PRODUCER_EPOCH"]]
    assert await unstable(world) == {0}
    assert await world.end(marker(epoch=1, version=1)) == [["NONE"]], "an older version may"


@pytest.mark.parametrize("is_written", [False, True])
@in_world(run, TMP_PATH)
async def test_where_the_outcome_is_unknown_the_log_says_what_is(
    world: CoordinatorWorld, *, is_written: bool
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}), 9)
    await commit_in(world)
    world.log.failure = NotLeaderOrFollower("leadership has moved")
    world.log.writes_failing = is_written
    failing = world.send(committing_in({0: 6}), LATEST)
    marking = world.mark(marker())
    await world.runtime.advance(0)
    assert code(failing.answer) == "NOT_COORDINATOR"
    assert marking.codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
    world.log.failure = None
    await settle()
    assert await unstable(world) == {0}
    assert await world.end(marker()) == [["NONE"]]
    assert await offsets(world) == {0: 6 if is_written else 5}


# ---- markers for whom --------------------------------------------------------------------


@in_world(run, TMP_PATH)
async def test_markers_of_one_request_are_answered_together(world: CoordinatorWorld) -> None:
    await world.begin()
    await commit_in(world)
    await commit_in(world, producer_id=OTHER)
    here = marker()
    several = here._replace(partitions=[*here.partitions, *marker(partition=1).partitions])
    assert await world.end(several, marker(producer_id=OTHER, committed=False)) == [
        ["NONE", "NOT_LEADER_OR_FOLLOWER"],
        ["NONE"],
    ]
    assert await world.end() == []
    assert await offsets(world) == {0: 5}


@in_world(run, TMP_PATH)
async def test_markers_for_what_is_not_led_here_are_sent_back(world: CoordinatorWorld) -> None:
    moved = [["NOT_LEADER_OR_FOLLOWER"]]
    assert await world.end(marker()) == moved
    await world.begin()
    assert await world.end(marker(leader_epoch=1)) == moved
    assert await world.end(marker(leader_epoch=0)) == [["NONE"]]
    here = marker().partitions[0]
    strange = marker()._replace(partitions=[here._replace(topic_id=id_of("t"))])
    assert await world.end(strange) == moved
    await world.actor.apply_routes(RouteUpdate(removed=[(id_of(OFFSETS_TOPIC), 0)]))
    assert await world.end(marker()) == moved


@in_world(run, TMP_PATH)
async def test_a_marker_waits_for_no_answer_of_a_shard_that_is_closed(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await commit_in(world)
    world.link.holding = True
    marking = world.mark(marker())
    asked = world.send(committing_in({0: 6}), LATEST)
    await world.actor.apply_routes(RouteUpdate(removed=[(id_of(OFFSETS_TOPIC), 0)]))
    assert marking.codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
    assert code(asked.answer) == "NOT_COORDINATOR"


# ---- the coordinator of the transaction is asked -----------------------------------------


@in_world(run, TMP_PATH)
async def test_the_partition_is_added_to_the_transaction(world: CoordinatorWorld) -> None:
    """Version 5 adds it, earlier ones have it looked for; once it is known nobody is asked."""

    await world.begin()
    asked = world.transactions.asked
    for version in (LATEST, ADDED_BEFORE, 0):
        assert await commit_in(world, version, producer_id=version) == "NONE"
        assert await commit_in(world, version, producer_id=version) == "NONE"
    where = [TopicPartitions(OFFSETS_TOPIC, [0])]
    assert asked == [
        AddPartitions(f"id-{version}", version, 0, version != LATEST, where)
        for version in (LATEST, ADDED_BEFORE, 0)
    ]
    assert await commit_in(world, epoch=1, producer_id=LATEST) == "NONE"
    assert len(asked) == 4, "another epoch is another transaction"
    await world.end(marker(producer_id=ADDED_BEFORE))
    assert await commit_in(world, ADDED_BEFORE, producer_id=ADDED_BEFORE) == "NONE"
    assert len(asked) == 5, "and so is what comes after the end"


@in_world(run, TMP_PATH)
async def test_a_transaction_is_known_after_a_crash(world: CoordinatorWorld) -> None:
    await world.begin()
    await commit_in(world)
    world.restart()
    await world.begin()
    assert await commit_in(world) == "NONE"
    assert len(world.transactions.asked) == 1


@pytest.mark.parametrize(
    ("outcome", "version", "expected"),
    [
        ([ErrorCode.TRANSACTION_ABORTABLE], 4, "TRANSACTION_ABORTABLE"),
        ([ErrorCode.TRANSACTION_ABORTABLE], 3, "INVALID_TXN_STATE"),
        ([ErrorCode.PRODUCER_FENCED], 5, "INVALID_PRODUCER_EPOCH"),
        ([ErrorCode.INVALID_PRODUCER_ID_MAPPING], 5, "INVALID_PRODUCER_ID_MAPPING"),
        ([ErrorCode.CONCURRENT_TRANSACTIONS], 5, "CONCURRENT_TRANSACTIONS"),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], 5, "COORDINATOR_LOAD_IN_PROGRESS"),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], 1, "COORDINATOR_NOT_AVAILABLE"),
        (NotCoordinator("moved"), 5, "NOT_COORDINATOR"),
        (CoordinatorNotAvailable("silent"), 5, "COORDINATOR_NOT_AVAILABLE"),
        (NetworkException("lost"), 5, "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
@in_world(run, TMP_PATH)
async def test_errors_of_the_transaction_coordinator_are_mapped_as_in_kafka(
    world: CoordinatorWorld,
    *,
    outcome: list[int] | CoordinatorNotAvailable,
    version: int,
    expected: str,
) -> None:
    """As Apache Kafka maps it for clients of that version."""

    await world.begin()
    world.transactions.outcome = outcome
    assert await commit_in(world, version) == expected
    assert world.log.end == 0


@in_world(run, TMP_PATH, transaction_partition_verification_enable="false")
async def test_older_clients_need_not_be_verified(world: CoordinatorWorld) -> None:
    await world.begin()
    assert await commit_in(world, ADDED_BEFORE) == "NONE"
    assert world.transactions.asked == []
    assert await commit_in(world, LATEST, producer_id=OTHER) == "NONE"
    assert len(world.transactions.asked) == 1, "what adds is asked all the same"


@in_world(run, TMP_PATH)
async def test_whether_older_clients_are_verified_changes_at_once(world: CoordinatorWorld) -> None:
    await world.begin()
    changes = (("false", 0), ("true", 1), (None, 2), ("FALSE", 2))
    for number, (value, asked) in enumerate(changes):
        await world.apply(ConfigChanged(ResourceType.BROKER, "", VERIFIED, value))
        assert await commit_in(world, ADDED_BEFORE, producer_id=OTHER + number) == "NONE"
        assert len(world.transactions.asked) == asked


@in_world(run, TMP_PATH)
async def test_nobody_is_asked_about_what_cannot_be_committed(world: CoordinatorWorld) -> None:
    await world.begin()
    assert await commit_in(world, group="") == "INVALID_GROUP_ID"
    assert await commit_in(world, topic="none") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert world.transactions.asked == []


@in_world(run, TMP_PATH)
async def test_a_marker_during_the_verification_makes_it_worthless(world: CoordinatorWorld) -> None:
    """Offsets written behind the marker would be pending for ever."""

    await world.begin()
    world.transactions.outcome = None
    asked = world.send(committing_in({0: 5}), ADDED_BEFORE)
    other = world.send(committing_in({1: 5}, producer_id=OTHER), ADDED_BEFORE)
    assert await world.end(marker()) == [["NONE"]]
    for settled in world.transactions.held:
        settled([0])
    await world.runtime.advance(1)
    assert outcomes(asked.answer) == [("t", 0, "INVALID_TXN_STATE")]
    assert outcomes(other.answer) == [("t", 1, "NONE")]
    world.transactions.outcome = [0]
    assert await commit_in(world, ADDED_BEFORE) == "NONE"


@in_world(run, TMP_PATH)
async def test_the_marker_of_the_transaction_before_does_not(world: CoordinatorWorld) -> None:
    """In version 2 the next one has its epoch, and waits for it at the coordinator."""

    await world.begin()
    assert await commit_in(world) == "NONE"
    world.transactions.outcome = None
    asked = world.send(committing_in({0: 6}, epoch=1), LATEST)
    assert await world.end(marker(epoch=1, version=2)) == [["NONE"]]
    for settled in world.transactions.held:
        settled([0])
    await world.runtime.advance(1)
    assert outcomes(asked.answer) == [("t", 0, "NONE")]
    assert await offsets(world) == {0: 5}
    assert await world.end(marker(epoch=2, version=2)) == [["NONE"]]
    assert await offsets(world) == {0: 6}


@in_world(run, TMP_PATH)
async def test_a_marker_on_its_way_ends_what_is_known_of_the_transaction(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await commit_in(world, ADDED_BEFORE)
    world.link.holding = True
    world.mark(marker())
    world.transactions.outcome = [ErrorCode.TRANSACTION_ABORTABLE]
    late = await world.ask(committing_in({1: 5}), ADDED_BEFORE)
    assert outcomes(late) == [("t", 1, "TRANSACTION_ABORTABLE")]
    world.link.release()


@in_world(run, TMP_PATH)
async def test_an_answer_of_the_transactions_coordinator_may_come_too_late(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    world.transactions.outcome = None
    asked = world.send(committing_in({0: 5}), LATEST)
    await world.lead(2)
    assert code(asked.answer) == "NOT_COORDINATOR"
    (settled,) = world.transactions.held
    settled([0])
    await world.runtime.advance(5)
    assert world.log.end == 0


@pytest.mark.parametrize("forgets", [False, True])
@in_world(run, TMP_PATH)
async def test_commit_or_tombstone_does_not_remove_later_pending_offsets(
    world: CoordinatorWorld, *, forgets: bool
) -> None:
    """Both are on their way into the log at once."""

    await world.begin()
    await world.ask(committing({0: 1}), 9)
    world.link.holding = True
    if forgets:
        world.send(deleting(0), 0)
    else:
        world.send(committing({0: 2}), 9)
    world.send(committing_in({0: 5}), LATEST)
    world.link.release()
    await world.runtime.advance(1)
    await settle()
    assert await offsets(world) == ({} if forgets else {0: 2})
    await world.end(marker())
    for _ in range(2):
        assert await offsets(world) == {0: 5}
        world.restart()
        await world.begin()


# ---- loading -----------------------------------------------------------------------------


@in_world(run, TMP_PATH)
async def test_transactions_in_the_log_are_read_as_they_went(world: CoordinatorWorld) -> None:
    """Committed, aborted and open ones, of one producer and of several, and plain commits."""

    await world.begin()
    await world.ask(committing({0: 1, 1: 1, 2: 1}), 9)
    await world.ask(committing_in({0: 2}), LATEST)
    await world.end(marker(epoch=1, version=2))
    await world.ask(committing_in({0: 3, 1: 3}, epoch=1), LATEST)
    await world.end(marker(epoch=2, version=2, committed=False))
    await world.ask(committing_in({1: 4, 2: 4}, epoch=2), LATEST)
    await world.ask(committing_in({2: 5}, producer_id=OTHER), LATEST)
    await world.ask(committing({1: 6}), 9)
    before = {0: 2, 1: 6, 2: 1}
    for _ in range(2):
        assert await offsets(world) == before
        assert await unstable(world) == {1, 2}
        world.restart()
        await world.begin()
    await world.end(marker(producer_id=OTHER))
    await world.end(marker(epoch=3, version=2))
    after = {0: 2, 1: 6, 2: 5}
    for _ in range(2):
        assert await offsets(world) == after
        assert await unstable(world) == set()
        world.restart()
        await world.begin()


@in_world(run, TMP_PATH)
async def test_a_transaction_that_wrote_later_and_commits_later_counts_in_the_log_too(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await world.ask(committing_in({0: 5}), LATEST)
    await world.ask(committing_in({0: 6}, producer_id=OTHER), LATEST)
    await world.end(marker())
    for _ in range(2):
        assert await offsets(world) == {0: 5}
        assert await unstable(world) == {0}
        world.restart()
        await world.begin()
    await world.end(marker(producer_id=OTHER))
    for _ in range(2):
        assert await offsets(world) == {0: 6}
        world.restart()
        await world.begin()


@in_world(run, TMP_PATH)
async def test_tombstones_take_pending_offsets_away_in_the_log_too(world: CoordinatorWorld) -> None:
    await world.begin()
    await world.ask(committing({2: 1}), 9)
    await world.ask(committing_in({0: 5, 1: 5, 2: 5}), LATEST)
    delete: OffsetDeleteRequest = deleting(0, 2)
    await world.ask(delete, 0)
    world.restart()
    await world.begin()
    assert await offsets(world) == {}
    await world.end(marker())
    for _ in range(2):
        assert await offsets(world) == {1: 5}
        world.restart()
        await world.begin()


@in_world(run, TMP_PATH)
async def test_a_group_of_pending_offsets_alone_is_there_after_a_crash(
    world: CoordinatorWorld,
) -> None:
    await world.begin()
    await commit_in(world)
    world.restart()
    await world.begin()
    listed = await world.ask(ListGroupsRequest(), 4)
    assert [(one.group_id, one.group_state) for one in listed.groups] == [("g", "Empty")]


@in_world(run, TMP_PATH)
async def test_the_log_of_a_fenced_epoch_is_read_right(world: CoordinatorWorld) -> None:
    """Its offsets, and then a marker of the epoch that has fenced it: the marker decides."""

    await world.begin()
    await commit_in(world, epoch=0)
    await world.end(marker(epoch=1, committed=False, version=1))
    assert await commit_in(world, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert await commit_in(world, epoch=1) == "NONE"
    world.restart()
    await world.begin()
    assert await offsets(world) == {}
    await world.end(marker(epoch=1))
    assert await offsets(world) == {0: 5}


@in_world(run, TMP_PATH)
async def test_a_crash_between_any_two_of_these_resumes_to_the_same_outcome(
    world: CoordinatorWorld,
) -> None:
    """Of the offsets: pending before the marker is in the log, decided from then on."""

    async def crash() -> None:
        world.restart()
        await world.begin()

    await world.begin()
    await world.ask(committing_in({0: 5}), 5)
    await crash()
    assert await offsets(world) == {}
    await world.ask(committing_in({1: 6}), 5)
    await crash()
    await world.end(marker())
    await crash()
    assert await offsets(world) == {0: 5, 1: 6}
    assert await world.end(marker()) == [["NONE"]], "the marker comes once more"
    assert await offsets(world) == {0: 5, 1: 6}
