"""Committed offsets of a shard: stored, returned, expired."""

import pytest

from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from raylog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.worlds.group.shard import ShardWorld
from tests.worlds.metadata import id_of

HOUR_MS = 3_600_000
BY_NAME, BY_ID = 9, 10
UNKNOWN_ID = b"?" * 16


@pytest.fixture
def world() -> ShardWorld:
    made = ShardWorld()
    made.topics(t=3, u=1)
    return made


def committing(
    offsets: dict[int, int],
    topic: str = "t",
    *,
    metadata: str | None = "",
    group: str = "g",
    retention_ms: int = -1,
    generation: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=id_of(topic),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def codes(response: OffsetCommitResponse) -> list[tuple[str, int, int]]:
    return [
        (topic.name, one.partition_index, one.error_code)
        for topic in response.topics
        for one in topic.partitions
    ]


def fetched(world: ShardWorld, group: str = "g") -> dict[tuple[str, int], int]:
    """Every offset of a group."""
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = world.ask(asked, BY_NAME).groups
    assert not found.error_code
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in found.topics
        for one in topic.partitions
    }


# ---- commit ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_outlive_the_process(world: ShardWorld, version: int) -> None:
    answer = world.ask(committing({0: 5, 2: 7}), version)
    assert [code for _, _, code in codes(answer)] == [0, 0]
    assert world.durable
    world.crash()
    assert fetched(world) == {("t", 0): 5, ("t", 2): 7}


def test_commits_are_written_as_kafka_writes_them(world: ShardWorld) -> None:
    world.ask(committing({0: 5}, metadata=None), 8)
    world.ask(committing({0: 6}, metadata="m", retention_ms=1000), 4)
    plain = OffsetCommitValue(
        offset=5, metadata="", commit_timestamp=world.now_ms, topic_id=id_of("t")
    )
    expiring = OffsetCommitValue(
        offset=6,
        metadata="m",
        commit_timestamp=world.now_ms,
        expire_timestamp=world.now_ms + 1000,
    )
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    assert world.log == [LogRecord(key, plain, 4), LogRecord(key, expiring, 1)]


def test_partitions_that_do_not_exist_are_refused_one_by_one(world: ShardWorld) -> None:
    answer = world.ask(committing({7: 1, 1: 2, -1: 3}), BY_NAME)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [("t", 7, unknown), ("t", -1, unknown), ("t", 1, 0)]
    answer = world.ask(committing({0: 1}, "nothing"), BY_NAME)
    assert codes(answer) == [("nothing", 0, unknown)]
    assert not world.durable


def test_topics_by_an_unknown_id_are_refused(world: ShardWorld) -> None:
    request = committing({0: 1})
    request.topics[0].topic_id = UNKNOWN_ID
    answer = world.ask(request, BY_ID)
    assert codes(answer) == [("", 0, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_long_metadata_is_refused() -> None:
    world = ShardWorld(GroupSettings(offset_metadata_bytes_max=3))
    world.topics(t=2)
    answer = world.ask(committing({0: 1}, metadata="four"), BY_NAME)
    assert codes(answer) == [("t", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
    assert codes(world.ask(committing({0: 1}, metadata="one"), BY_NAME)) == [("t", 0, 0)]
    two_pairs = world.ask(committing({0: 1}, metadata="😀😀"), BY_NAME)  # four units in Java
    assert codes(two_pairs) == [("t", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE)]


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_no_group_cannot_commit(
    world: ShardWorld, version: int, error: ErrorCode
) -> None:
    answer = world.ask(committing({0: 1}, generation=3), version)
    assert codes(answer) == [("t", 0, error)]
    assert not world.log


def test_a_group_of_offsets_alone_has_no_members(world: ShardWorld) -> None:
    world.ask(committing({0: 1}), BY_NAME)
    answer = world.ask(committing({0: 2}, generation=3), BY_NAME)
    assert codes(answer) == [("t", 0, ErrorCode.UNKNOWN_MEMBER_ID)]


def test_a_request_about_nothing_known_never_reaches_the_group(world: ShardWorld) -> None:
    answer = world.ask(committing({0: 1}, "nothing", generation=3), BY_NAME)
    assert codes(answer) == [("nothing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_the_empty_group_id_is_a_group_of_its_own(world: ShardWorld) -> None:
    assert codes(world.ask(committing({0: 1}, group=""), BY_NAME)) == [("t", 0, 0)]
    assert fetched(world, "") == {("t", 0): 1}


# ---- fetch -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 8))
def test_missing_offset_is_answered_with_minus_one(world: ShardWorld, version: int) -> None:
    world.ask(committing({0: 5}, metadata="m"), BY_NAME)
    asked = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 9])]
    )
    answer = world.ask(asked, version)
    (topic,) = answer.topics
    assert [(one.committed_offset, one.metadata, one.error_code) for one in topic.partitions] == [
        (5, "m", 0),
        (-1, "", 0),
        (-1, "", 0),
    ]
    assert not world.durable, "what is told is below the high watermark already"


def test_several_groups_are_answered_together(world: ShardWorld) -> None:
    world.ask(committing({0: 5}), BY_NAME)
    topics = [OffsetFetchRequestTopics(name="u", partition_indexes=[0])]
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="none", topics=None),
            OffsetFetchRequestGroup(group_id="none", topics=topics),
        ]
    )
    first, second, third = world.ask(asked, 8).groups
    assert first.topics[0].partitions[0].committed_offset == 5
    assert second.topics == []
    assert third.topics[0].partitions[0].committed_offset == -1


def test_topics_by_id(world: ShardWorld) -> None:
    world.ask(committing({0: 5}), BY_ID)
    topics = [
        OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=id_of("t"), partition_indexes=[0]),
    ]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    known, unknown = world.ask(asked, BY_ID).groups[0].topics
    assert known.topic_id == id_of("t")
    assert known.partitions[0].committed_offset == 5
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (topic,) = world.ask(everything, BY_ID).groups[0].topics
    assert topic.topic_id == id_of("t")


def test_the_oldest_format_is_read(world: ShardWorld) -> None:
    key = LegacyOffsetCommitKey(group="old", topic="t", partition=1)
    value = LegacyOffsetCommitValue(offset=3, metadata="", commit_timestamp=1)
    world.log.append(LogRecord(key, value))
    world.crash()
    assert fetched(world, "old") == {("t", 1): 3}


# ---- forgetting --------------------------------------------------------------------------


def deleting(*partitions: int, topic: str = "t", group: str = "g") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index) for index in partitions
                ],
            )
        ],
    )


def test_offsets_are_deleted_by_tombstones(world: ShardWorld) -> None:
    world.ask(committing({0: 5, 1: 6}), BY_NAME)
    answer = world.ask(deleting(0, 2, 9), 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [("t", 9, unknown), ("t", 0, 0), ("t", 2, 0)]
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    assert world.log[2:] == [LogRecord(key, None)]
    world.crash()
    assert fetched(world) == {("t", 1): 6}


def test_offsets_of_no_group_cannot_be_deleted(world: ShardWorld) -> None:
    assert world.ask(deleting(0), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.ask(deleting(0, group=""), 0).error_code == ErrorCode.INVALID_GROUP_ID


def described(world: ShardWorld, group: str = "g") -> str:
    """The group's state."""
    state: str = world.ask(DescribeGroupsRequest(groups=[group]), 6).groups[0].group_state
    return state


def test_a_group_outlives_its_last_offset_until_the_next_look_for_expired_ones(
    world: ShardWorld,
) -> None:
    world.ask(committing({0: 5}), BY_NAME)
    world.ask(deleting(0), 0)
    assert described(world) == "Empty"
    assert world.ask(deleting(0), 0).error_code == ErrorCode.NONE
    world.expire()
    assert described(world) == "Dead"
    assert world.log[-1] == LogRecord(GroupMetadataKey(group="g"), None)
    assert world.ask(deleting(0), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    written = len(world.log)
    world.expire()
    assert len(world.log) == written


def test_a_group_without_its_offsets_is_deleted_on_demand(world: ShardWorld) -> None:
    world.ask(committing({0: 5}), BY_NAME)
    world.delete_topic("t")
    assert described(world) == "Empty"
    asked = DeleteGroupsRequest(groups_names=["g", "g"])
    codes_of = [one.error_code for one in world.ask(asked, 2).results]
    assert codes_of == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert described(world) == "Dead"
    world.crash()
    assert described(world) == "Dead"


def test_offsets_of_a_deleted_topic_go_with_it(world: ShardWorld) -> None:
    world.ask(committing({0: 5}), BY_NAME)
    world.ask(committing({0: 6}, "u"), BY_NAME)
    world.delete_topic("t")
    assert fetched(world) == {("u", 0): 6}
    world.crash()
    assert fetched(world) == {("u", 0): 6}


def test_a_topic_deleted_while_nobody_looked_is_noticed_at_the_load(world: ShardWorld) -> None:
    world.ask(committing({0: 5}), BY_NAME)
    world.image.topic_ids.pop("t")
    world.crash()
    assert fetched(world) == {}
    assert world.log[-1].value is None


def test_offsets_are_kept_for_the_retention_time() -> None:
    world = ShardWorld(GroupSettings(offsets_retention_ms=HOUR_MS))
    world.topics(t=3)
    world.ask(committing({0: 1}), BY_NAME)
    world.now_ms += HOUR_MS - 1
    world.ask(committing({1: 2}), BY_NAME)
    world.expire()
    assert fetched(world) == {("t", 0): 1, ("t", 1): 2}
    world.now_ms += 1
    world.expire()
    assert fetched(world) == {("t", 1): 2}
    world.crash()
    assert fetched(world) == {("t", 1): 2}


def test_an_old_client_says_how_long_a_commit_is_kept(world: ShardWorld) -> None:
    world.ask(committing({0: 1}, retention_ms=100), 4)
    world.crash()
    world.now_ms += 99
    world.expire()
    assert fetched(world) == {("t", 0): 1}
    world.now_ms += 1
    world.expire()
    assert fetched(world) == {}
    assert not world.shard.offsets.groups


@pytest.mark.parametrize(
    ("kind", "topic", "kept"),
    [("connect", "t", True), ("consumer", "t", True), ("consumer", "u", False)],
)
def test_offset_of_a_group_with_members_is_kept_though_its_own_time_is_over(
    world: ShardWorld, *, kind: str, topic: str, kept: bool
) -> None:
    """Only those of topics that consumers do not subscribe to expire then, as in Kafka."""
    joined = world.join("", "t", version=3, protocol_type=kind)
    world.sync(joined.member_id, joined.generation_id, protocol_type=kind)
    commit = committing({0: 1}, topic, retention_ms=100, generation=joined.generation_id)
    commit.member_id = joined.member_id
    assert codes(world.ask(commit, 4)) == [(topic, 0, 0)]
    world.now_ms += 100
    assert world.send_join("", "t", version=3, protocol_type=kind).waits
    world.expire()
    assert fetched(world) == {(topic, 0): 1}, "while it rebalances, all are kept"
    rejoined = world.join(joined.member_id, "t", version=3, protocol_type=kind)
    world.sync(rejoined.leader, rejoined.generation_id, protocol_type=kind)
    world.expire()
    assert fetched(world) == ({(topic, 0): 1} if kept else {})
    world.advance(120_000)
    world.expire()
    assert fetched(world) == {}, "both are gone"
