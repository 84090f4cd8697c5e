"""TxnOffsetCommit in a shard: who may commit, what is pending, what it holds back."""

import pytest

from raylog.actors.coordination.rules import records
from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.loading import Loading
from raylog.actors.group.rules.offset_store import OffsetStore
from raylog.actors.group.rules.pending import Producer, StoredOffset
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.shard import Shard
from raylog.actors.group.rules.transactions import batch_of
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raylog.wire.record import Record
from raylog.wire.records import NO_SEQUENCE, assign, decode_batch, encode_batch, read_header
from tests.unit.actors.group.test_offsets import codes, committing, deleting, described, fetched
from tests.unit.actors.group.test_shard import heartbeat, join_classic, joining
from tests.worlds.group.pending_offsets import PRODUCER_ID, committing_in, outcomes
from tests.worlds.group.shard import ShardWorld
from tests.worlds.metadata import id_of

HOUR_MS = 3_600_000
LATEST = 5
OTHER = PRODUCER_ID + 1


@pytest.fixture
def world() -> ShardWorld:
    made = ShardWorld(GroupSettings(offsets_retention_ms=HOUR_MS, initial_rebalance_delay_ms=0))
    made.topics(t=3, u=1)
    return made


def end(world: ShardWorld, *, committed: bool = True, producer_id: int = PRODUCER_ID) -> None:
    """The producer's marker is in the log."""
    store = world.shard.offsets
    store.end_transaction(producer_id, store.pending.next_number, committed=committed)


def stable(
    world: ShardWorld, *partitions: int, group: str = "g", version: int = 9
) -> list[tuple[int, str]]:
    """What someone is told who wants no offset that may still change."""
    named = OffsetFetchRequestTopics(name="t", topic_id=id_of("t"), partition_indexes=[*partitions])
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[named])], require_stable=True
    )
    (found,) = world.ask(asked, version).groups
    assert not found.error_code
    return [
        (one.committed_offset, ErrorCode(one.error_code).name) for one in found.topics[0].partitions
    ]


# ---- commit ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_offsets_count_when_the_transaction_commits(world: ShardWorld, version: int) -> None:
    world.ask(committing({0: 1}), 9)
    answer = world.ask(committing_in({0: 5, 2: 7}), version)
    assert outcomes(answer) == [("t", 0, "NONE"), ("t", 2, "NONE")]
    assert world.durable
    assert fetched(world) == {("t", 0): 1}
    end(world)
    assert fetched(world) == {("t", 0): 5, ("t", 2): 7}


def test_offsets_of_an_aborted_transaction_never_count(world: ShardWorld) -> None:
    world.ask(committing({0: 1}), 9)
    world.ask(committing_in({0: 5, 2: 7}), LATEST)
    end(world, committed=False)
    assert fetched(world) == {("t", 0): 1}
    end(world)
    assert fetched(world) == {("t", 0): 1}, "nothing is left that another marker could commit"


def test_last_offset_of_a_transaction_counts(world: ShardWorld) -> None:
    for offset in (5, 9, 7):
        world.ask(committing_in({0: offset}), LATEST)
    end(world)
    assert fetched(world) == {("t", 0): 7}


def test_records_are_those_of_kafka(world: ShardWorld) -> None:
    """As dumped from Apache Kafka 4.3.1, but with the topic's id, as Kafka's other commits."""
    world.ask(committing_in({0: 5}, metadata="m"), LATEST)
    value = OffsetCommitValue(
        offset=5, metadata="m", commit_timestamp=world.now_ms, topic_id=id_of("t")
    )
    record = LogRecord(OffsetCommitKey(group="g", topic="t", partition=0), value)
    assert world.log == [record]
    batch = batch_of(world.log, Producer(7, 3), world.now_ms)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, NO_SEQUENCE)
    assert (header.is_transactional, header.is_control) == (True, False)
    (written,) = decode_batch(batch)
    assert written.key == b"\0\1\0\1g\0\1t\0\0\0\0"
    assert written.value == b"".join(
        [
            *(b"\0\4", (5).to_bytes(8), b"\xff" * 4, b"\2m", world.now_ms.to_bytes(8)),
            *(b"\1", b"\0\x10", id_of("t")),
        ]
    )


def test_partitions_that_do_not_exist_are_refused_one_by_one(world: ShardWorld) -> None:
    answer = world.ask(committing_in({0: 5, 7: 1}), LATEST)
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert outcomes(answer) == [("t", 7, unknown), ("t", 0, "NONE")]
    answer = world.ask(committing_in({0: 5}, "none", generation=3), LATEST)
    assert outcomes(answer) == [("none", 0, unknown)]


def test_long_metadata_is_refused(world: ShardWorld) -> None:
    answer = world.ask(committing_in({0: 5}, metadata="x" * 4097), LATEST)
    assert outcomes(answer) == [("t", 0, "OFFSET_METADATA_TOO_LARGE")]
    assert not world.durable
    assert outcomes(world.ask(committing_in({0: 5}, metadata="x" * 4096), LATEST)) == [
        ("t", 0, "NONE")
    ]


def test_the_empty_group_id_has_no_transactions(world: ShardWorld) -> None:
    answer = world.ask(committing_in({0: 5}, group=""), LATEST)
    assert outcomes(answer) == [("t", 0, "INVALID_GROUP_ID")]


# ---- who may (KIP-447) -------------------------------------------------------------------


def refusal(world: ShardWorld, **changes: object) -> str:
    """What becomes of one offset."""
    ((_, _, code),) = outcomes(world.ask(committing_in({0: 5}, **changes), 3))  # type: ignore[arg-type]  # as given
    return code


def test_a_member_of_no_group_cannot_commit(world: ShardWorld) -> None:
    assert refusal(world, generation=3, member_id="m") == "ILLEGAL_GENERATION"
    assert refusal(world, member_id="m") == "NONE", "which makes a group of offsets alone"
    assert refusal(world, generation=3, member_id="m") == "UNKNOWN_MEMBER_ID"


def test_a_member_of_a_classic_group_commits_in_its_generation_alone(world: ShardWorld) -> None:
    member = join_classic(world, "g")
    assert refusal(world, generation=1, member_id=member) == "NONE"
    assert refusal(world, generation=0, member_id=member) == "ILLEGAL_GENERATION"
    assert refusal(world, member_id=member) == "ILLEGAL_GENERATION"
    assert refusal(world, generation=1, member_id="stranger") == "UNKNOWN_MEMBER_ID"
    assert refusal(world, generation=1, member_id=member, instance="i") == "UNKNOWN_MEMBER_ID"
    assert refusal(world) == "NONE", "older clients tell no member"


def test_a_member_may_commit_before_it_has_its_assignment(world: ShardWorld) -> None:
    joined = world.ask(joining("g"), 3)
    commit = committing({0: 1}, generation=1)
    commit.member_id = joined.member_id
    assert codes(world.ask(commit, 8)) == [("t", 0, ErrorCode.REBALANCE_IN_PROGRESS)]
    assert refusal(world, generation=1, member_id=joined.member_id) == "NONE"


def test_a_static_member_commits_by_its_own_id_alone(world: ShardWorld) -> None:
    joined = world.ask(joining("g", group_instance_id="i"), 5)
    member = {"generation": 1, "instance": "i"}
    assert refusal(world, member_id=joined.member_id, **member) == "NONE"
    assert refusal(world, member_id="replaced", **member) == "FENCED_INSTANCE_ID"


def test_a_commit_in_a_transaction_does_not_renew_the_session(world: ShardWorld) -> None:
    member = join_classic(world, "g")
    world.now_ms += 9_000
    assert refusal(world, generation=1, member_id=member) == "NONE"
    world.now_ms += 1_001
    world.advance(0)
    assert refusal(world, generation=1, member_id=member) == "UNKNOWN_MEMBER_ID"


def test_a_member_of_a_consumer_group_commits_at_its_epoch_alone(world: ShardWorld) -> None:
    """Of KIP-848 the error is the classic one: clients of this API know no other."""
    epoch = world.ask(heartbeat("g"), 1).member_epoch
    for said, member, expected in (
        (epoch, "m", "NONE"),
        (epoch - 1, "m", "ILLEGAL_GENERATION"),
        (epoch + 1, "m", "ILLEGAL_GENERATION"),
        (epoch, "stranger", "UNKNOWN_MEMBER_ID"),
        (-1, "", "NONE"),
        (-1, "m", "ILLEGAL_GENERATION"),
    ):
        assert refusal(world, generation=said, member_id=member) == expected, (said, member)


# ---- fetch -------------------------------------------------------------------------------


def test_require_stable_offsets_are_unstable_until_the_marker(world: ShardWorld) -> None:
    world.ask(committing({0: 1, 1: 2}), 9)
    world.ask(committing_in({0: 5, 2: 7}), LATEST)
    unstable = (-1, "UNSTABLE_OFFSET_COMMIT")
    for version in (8, 9, 10):
        assert stable(world, 0, 1, 2, version=version) == [unstable, (2, "NONE"), unstable]
    end(world, committed=False)
    assert stable(world, 0, 1, 2) == [(1, "NONE"), (2, "NONE"), (-1, "NONE")]


def test_every_stable_offset_of_a_group(world: ShardWorld) -> None:
    """As Apache Kafka answers it: a partition with a pending offset alone is not in it."""
    world.ask(committing({0: 1, 1: 2}), 9)
    world.ask(committing_in({0: 5, 2: 7}), LATEST)
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True
    )
    ((topic,),) = [group.topics for group in world.ask(asked, 9).groups]
    assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [
        (0, -1),
        (1, 2),
    ]
    assert topic.partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_version_7_asks_for_stable_offsets_of_one_group(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    asked = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])],
        require_stable=True,
    )
    answer = world.ask(asked, 7)
    assert answer.error_code == ErrorCode.NONE
    assert [one.error_code for one in answer.topics[0].partitions] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]


# ---- several ways to commit one partition ------------------------------------------------


def test_an_offset_committed_meanwhile_is_newer(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.ask(committing({0: 9}), 9)
    assert stable(world, 0) == [(-1, "UNSTABLE_OFFSET_COMMIT")]
    end(world)
    assert stable(world, 0) == [(9, "NONE")]


def test_transactional_commit_after_a_plain_one_wins(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.ask(committing({0: 9}), 9)
    world.ask(committing_in({0: 6}), LATEST)
    end(world)
    assert fetched(world) == {("t", 0): 6}


def test_offset_of_the_transaction_that_wrote_last_counts(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.ask(committing_in({0: 6}, producer_id=OTHER), LATEST)
    end(world, producer_id=OTHER)
    assert fetched(world) == {("t", 0): 6}
    assert stable(world, 0) == [(-1, "UNSTABLE_OFFSET_COMMIT")]
    end(world)
    assert fetched(world) == {("t", 0): 6}


def test_a_transaction_that_wrote_later_and_commits_later_counts(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.ask(committing_in({0: 6}, producer_id=OTHER), LATEST)
    end(world)
    assert fetched(world) == {("t", 0): 5}
    end(world, producer_id=OTHER)
    assert fetched(world) == {("t", 0): 6}


def test_an_aborted_transaction_overtakes_nothing(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.ask(committing_in({0: 6}, producer_id=OTHER), LATEST)
    end(world, producer_id=OTHER, committed=False)
    end(world)
    assert fetched(world) == {("t", 0): 5}


# ---- forgetting --------------------------------------------------------------------------


def test_a_group_of_pending_offsets_alone_is_an_empty_group(world: ShardWorld) -> None:
    """As Apache Kafka lists and describes it, also after an abort, until the next look."""
    world.ask(committing_in({0: 5}), LATEST)
    (listed,) = world.ask(ListGroupsRequest(), 5).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Empty", "classic")
    world.now_ms += 2 * HOUR_MS
    world.expire()
    assert described(world) == "Empty", "it has something to wait for"
    end(world, committed=False)
    assert described(world) == "Empty"
    world.expire()
    assert described(world) == "Dead"


def test_an_offset_does_not_expire_while_a_transaction_goes_over_it(world: ShardWorld) -> None:
    world.ask(committing({0: 1, 1: 1}), 9)
    world.ask(committing_in({0: 5}), LATEST)
    world.now_ms += HOUR_MS
    world.expire()
    assert fetched(world) == {("t", 0): 1}
    end(world, committed=False)
    world.expire()
    assert fetched(world) == {}


def test_offset_delete_takes_pending_offsets_too(world: ShardWorld) -> None:
    world.ask(committing({0: 1}), 9)
    world.ask(committing_in({0: 5, 1: 6, 2: 7}), LATEST)
    before = len(world.log)
    assert codes(world.ask(deleting(0, 1), 0)) == [("t", 0, 0), ("t", 1, 0)]
    assert [record.value for record in world.log[before:]] == [None, None]
    assert stable(world, 0, 1, 2) == [
        (-1, "NONE"),
        (-1, "NONE"),
        (-1, "UNSTABLE_OFFSET_COMMIT"),
    ]
    end(world)
    assert fetched(world) == {("t", 2): 7}


def test_delete_groups_takes_pending_offsets_too(world: ShardWorld) -> None:
    world.ask(committing({0: 1}), 9)
    world.ask(committing_in({0: 5, 1: 6}), LATEST)
    before = len(world.log)
    (result,) = world.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == ErrorCode.NONE
    assert [(type(record.key), record.value) for record in world.log[before:]] == [
        (OffsetCommitKey, None),
        (OffsetCommitKey, None),
        (GroupMetadataKey, None),
    ]
    assert described(world) == "Dead"
    end(world)
    assert described(world) == "Dead"
    assert stable(world, 0, 1) == [(-1, "NONE"), (-1, "NONE")]


def test_pending_offsets_of_a_deleted_topic_go_with_it(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.ask(committing_in({0: 6}, "u"), LATEST)
    world.delete_topic("t")
    end(world)
    assert fetched(world) == {("u", 0): 6}


def test_a_topic_deleted_while_nobody_looked_is_noticed_at_the_load(world: ShardWorld) -> None:
    world.ask(committing_in({0: 5}), LATEST)
    world.image.topic_ids.pop("t")
    world.run(lambda step: world.shard.forget_gone(step, world.shard.walk()))
    assert world.log[-1].value is None
    assert not world.shard.offsets.pending.of("g")


def test_a_group_that_changes_its_protocol_keeps_its_pending_offsets(world: ShardWorld) -> None:
    world.ask(heartbeat("g"), 1)
    world.ask(committing_in({0: 5}), 3)
    world.ask(heartbeat("g", -1), 1)
    assert described(world, "g") == "Dead", "a consumer group is not to be described so"
    assert not world.ask(joining("g"), 3).error_code
    assert stable(world, 0) == [(-1, "UNSTABLE_OFFSET_COMMIT")]
    end(world)
    assert stable(world, 0) == [(5, "NONE")]


# ---- what the log refuses ----------------------------------------------------------------


def test_refused_pending_offsets_are_reverted(world: ShardWorld) -> None:
    pending = world.shard.offsets.pending
    world.ask(committing_in({0: 5}, epoch=1), LATEST)
    first = pending.next_number
    world.ask(committing_in({0: 4, 1: 4}, epoch=0), LATEST)
    world.shard.offsets.revert_pending(range(first, pending.next_number))
    assert stable(world, 0, 1) == [(-1, "UNSTABLE_OFFSET_COMMIT"), (-1, "NONE")]
    end(world)
    assert fetched(world) == {("t", 0): 5}


def test_a_group_that_the_refused_offsets_would_have_made_never_was(world: ShardWorld) -> None:
    world.ask(committing_in({0: 4}), LATEST)
    world.shard.offsets.revert_pending(range(1))
    assert described(world) == "Dead"
    assert len(world.shard.offsets.pending) == 0


def test_a_marker_ends_only_what_was_written_before_it(world: ShardWorld) -> None:
    pending = world.shard.offsets.pending
    world.ask(committing_in({0: 5, 1: 5}), LATEST)
    before = pending.close(PRODUCER_ID)
    world.ask(committing_in({0: 6}, epoch=1), LATEST)
    world.shard.offsets.end_transaction(PRODUCER_ID, before, committed=True)
    assert fetched(world) == {("t", 0): 5, ("t", 1): 5}
    assert stable(world, 0, 1) == [(-1, "UNSTABLE_OFFSET_COMMIT"), (5, "NONE")]


def test_a_long_transaction_keeps_one_offset_of_each_partition(world: ShardWorld) -> None:
    pending = world.shard.offsets.pending
    for offset in range(100):
        first = pending.next_number
        world.ask(committing_in({0: offset, 1: offset}), LATEST)
        pending.confirm(range(first, pending.next_number))
    assert len(pending) == 2
    end(world)
    assert fetched(world) == {("t", 0): 99, ("t", 1): 99}


# ---- what is not committed yet ------------------------------------------------------------


def test_committed_offset_stays_visible_while_newer_ones_are_in_flight() -> None:
    store = OffsetStore()
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    store.replay(key, OffsetCommitValue(offset=1)).commit()
    second, third = (store.replay(key, OffsetCommitValue(offset=n)) for n in (2, 3))

    def answers() -> tuple[int, int]:
        return store.committed("g")["t"][0].offset, store.of("g")["t"][0].offset

    assert answers() == (1, 3)
    second.commit()
    assert answers() == (2, 3)
    third.revert()
    assert answers() == (2, 2)


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_transaction_that_commits_comes_before_all_that_is_on_its_way(refused: int) -> None:
    """Of several commits of that partition the first is put back to it, and all are in the end."""
    store = OffsetStore()
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    store.replay_pending(Producer(PRODUCER_ID, 0), key, OffsetCommitValue(offset=7))
    before = store.pending.close(PRODUCER_ID)
    later = [store.replay(key, OffsetCommitValue(offset=n)) for n in (8, 9)]
    store.end_transaction(PRODUCER_ID, before, committed=True)
    assert store.committed("g")["t"][0].offset == 7
    for change in later[: len(later) - refused]:
        change.commit()
    for change in reversed(later[len(later) - refused :]):
        change.revert()
    assert store.of("g")["t"][0].offset == 9 - refused
    assert store.committed("g") == store.of("g")


# ---- what is read from the middle of a batch ----------------------------------------------


def commits(first: int, producer_id: int = -1, *, tombstones: bool = False) -> memoryview:
    """A batch of offsets from partition 0 on, at these offsets of the log."""
    found = [
        LogRecord(
            OffsetCommitKey(group="g", topic="t", partition=n),
            None if tombstones else OffsetCommitValue(offset=first + n),
        )
        for n in range(3)
    ]
    batch = bytearray(
        encode_batch(
            [Record(n, 0, *records.encode(one), []) for n, one in enumerate(found)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
    )
    assign(batch, first, 0)
    return memoryview(batch)


def read(*parts: tuple[memoryview, int]) -> OffsetStore:
    """What a shard has after it has read these batches, each from an offset on."""
    shard = Shard(GroupSettings(), Assigning())
    loading = Loading(shard)
    for batch, offset in parts:
        assert loading.take(batch, offset) == read_header(batch).next_offset
    while loading.commits:
        loading.place_some()
    loading.place_pending()
    return shard.offsets


def test_records_before_the_start_offset_are_skipped() -> None:
    assert read((commits(10), 11)).of("g")["t"].keys() == {1, 2}
    assert read((commits(10, PRODUCER_ID), 11)).pending.of("g").keys() == {("t", 1), ("t", 2)}


def test_skipped_records_overtake_nothing() -> None:
    store = read((commits(10, PRODUCER_ID), 10), (commits(13), 14))
    assert {at: one.offset for at, one in store.of("g")["t"].items()} == {1: 14, 2: 15}
    store.end_transaction(PRODUCER_ID, store.pending.next_number, committed=True)
    assert {at: one.offset for at, one in store.of("g")["t"].items()} == {0: 10, 1: 14, 2: 15}


@pytest.mark.parametrize("producer_id", [-1, PRODUCER_ID])
def test_a_tombstone_takes_away_what_counts_and_what_waits_for_its_marker(
    producer_id: int,
) -> None:
    other = PRODUCER_ID + 1
    gone = commits(19, producer_id, tombstones=True)
    store = read(
        (commits(10), 10), (commits(13, PRODUCER_ID), 13), (commits(16, other), 16), (gone, 19)
    )
    assert store.of("g") == {}
    assert not store.pending
    store = read((commits(10, PRODUCER_ID), 10), (gone, 19), (commits(22, other), 22))
    store.end_transaction(PRODUCER_ID, store.pending.next_number, committed=True)
    assert store.of("g") == {}
    store.end_transaction(other, store.pending.next_number, committed=True)
    assert {at: one.offset for at, one in store.of("g")["t"].items()} == {0: 22, 1: 23, 2: 24}


def test_confirming_a_forgotten_offset_is_harmless() -> None:
    """A tombstone was decided while the offset was on its way into the log."""
    pending = OffsetStore().pending
    one = pending.add(Producer(PRODUCER_ID, 0), "g", "t", 0, StoredOffset(5, -1, "", 0, -1, b""))
    pending.forget("g", "t", 0, pending.next_number)
    pending.confirm([one.number])
    assert len(pending) == 0
    assert not pending.is_open(Producer(PRODUCER_ID, 0))
