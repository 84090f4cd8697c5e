"""Who may commit and fetch offsets; older epochs may commit what they still own (KIP-1251)."""

from __future__ import annotations

import pytest

from raylog.actors.coordination.rules.step import Step
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.worlds.group.consumer import GROUP, ConsumerWorld


@pytest.fixture
def world() -> ConsumerWorld:
    """`a` is at epoch 3, with t0 and t1 since 2; `b` has t2 and t3 since 3."""
    world = ConsumerWorld(t=4)
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0, 1]})
    world.beat("b", 3)
    return world


def commit(
    world: ConsumerWorld,
    member_id: str,
    epoch: int,
    *partitions: int,
    version: int = 10,
    topic: str = "t",
) -> ErrorCode:
    """Ask whether the member may commit in a topic."""
    named = {"topic_id": world.world.image.topic_ids["t"]} if version >= 10 else {"name": topic}
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=one, committed_offset=0, committed_metadata=""
                    )
                    for one in partitions
                ],
                **named,
            )
        ],
    )

    def check(step: Step) -> None:
        world.group.check_commit(step, request, version)

    try:
        world.world.run(check)
    except KafkaError as failure:
        return failure.code
    return ErrorCode.NONE


def test_current_epoch(world: ConsumerWorld) -> None:
    assert commit(world, "a", 3, 0, 3) is ErrorCode.NONE  # owned or not
    assert commit(world, "a", 4, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "a", -1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "x", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [9, 10])
def test_older_epochs(world: ConsumerWorld, version: int) -> None:
    assert commit(world, "a", 2, 0, 1, version=version) is ErrorCode.NONE
    assert commit(world, "a", 1, 0, version=version) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "a", 2, 0, 2, version=version) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "b", 2, 2, version=version) is ErrorCode.STALE_MEMBER_EPOCH


def test_nobody_owns_what_does_not_exist(world: ConsumerWorld) -> None:
    assert commit(world, "a", 2, 0, version=9, topic="gone") is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "a", 3, 0, version=9, topic="gone") is ErrorCode.NONE


def test_versions_without_member_epochs(world: ConsumerWorld) -> None:
    assert commit(world, "a", 3, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_group_takes_commits_from_outside(world: ConsumerWorld) -> None:
    world.beat("a", -1)
    world.beat("b", -1)
    assert commit(world, "", -1, 0) is ErrorCode.NONE
    assert commit(world, "a", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_is_back_may_not_commit_as_of_before(world: ConsumerWorld) -> None:
    world.join("s", "t", instance_id="i")
    world.beat("s", -2, instance_id="i")
    assert commit(world, "s", 4, 0) is ErrorCode.STALE_MEMBER_EPOCH


def fetch(world: ConsumerWorld, member_id: str | None, epoch: int) -> ErrorCode:
    try:
        world.group.check_fetch(member_id, epoch)
    except KafkaError as failure:
        return failure.code
    return ErrorCode.NONE


def test_fetch(world: ConsumerWorld) -> None:
    assert fetch(world, None, -1) is ErrorCode.NONE
    assert fetch(world, "a", 3) is ErrorCode.NONE
    assert fetch(world, "a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(world, "x", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(world, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
