"""OffsetFetch of all offsets of a group: of every partition with a committed one, as in Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from raylog.actors.group.existing import ExistingTopics
from raylog.actors.group.offset_store import Topics
from raylog.actors.group.pending import StoredOffset
from raylog.actors.group.telling import Telling
from raylog.wire.errors import ErrorCode, MessageTooLarge
from raylog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from raylog.wire.uuids import ZERO_UUID

TOPIC_IDS_SINCE = 10
NO_OFFSET = -1
METADATA_MAX = 32 << 20
"""Characters of metadata in one answer. Apache Kafka tells as much as there is."""


def all_offsets(
    existing: ExistingTopics,
    stored: Topics,
    unstable: Collection[tuple[str, int]],
    group_id: str,
    version: int,
) -> Telling[OffsetFetchResponseGroup]:
    """A partition of which an offset is pending only is not told.

    The steps raise MessageTooLarge where the metadata is too long together.
    """
    answer = OffsetFetchResponseGroup(group_id=group_id)
    now = {name: partitions.copy() for name, partitions in stored.items()}
    return Telling(answer, _each(answer.topics, existing, now, frozenset(unstable), version))


def _each(
    topics: list[OffsetFetchResponseTopics],
    existing: ExistingTopics,
    stored: Topics,
    unstable: Collection[tuple[str, int]],
    version: int,
) -> Iterator[int]:
    left = METADATA_MAX
    for name, partitions in stored.items():
        told: OffsetFetchResponseTopics | None = None
        for index, one in partitions.items():
            yield 1
            if not existing.have(name, one):
                continue
            if told is None:
                told = _topic(existing, name, version)
                topics.append(told)
            left -= len(one.metadata)
            if left < 0:
                raise MessageTooLarge(
                    f"offsets with more than {METADATA_MAX} characters of metadata"
                )
            is_unstable = (name, index) in unstable
            told.partitions.append(refused(index) if is_unstable else fetched(index, one))


def _topic(existing: ExistingTopics, name: str, version: int) -> OffsetFetchResponseTopics:
    if version < TOPIC_IDS_SINCE:
        return OffsetFetchResponseTopics(name=name, topic_id=ZERO_UUID)
    return OffsetFetchResponseTopics(name="", topic_id=existing.image.topic_ids[name])


def refused(index: int) -> OffsetFetchResponsePartitions:
    """A partition of which an offset is pending (KIP-447)."""
    return fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def fetched(
    index: int, stored: StoredOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    """One partition's offset; -1 where there is none."""
    if stored is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=int(code),
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=stored.offset,
        committed_leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
    )


def as_single(found: Telling[OffsetFetchResponseGroup]) -> Telling[OffsetFetchResponse]:
    """The answer about one group up to version 7."""
    answer = OffsetFetchResponse()
    return Telling(answer, _as_single(found, answer))


def _as_single(
    found: Telling[OffsetFetchResponseGroup], answer: OffsetFetchResponse
) -> Iterator[int]:
    yield from found.rest
    for topic in found.response.topics:
        told = OffsetFetchResponseTopic(name=topic.name)
        answer.topics.append(told)
        for one in topic.partitions:
            told.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
            )
            yield 1


def has_too_much_metadata(answer: OffsetFetchResponse) -> bool:
    """Whether an answer to a request that names partitions, each perhaps often, is too long."""
    groups = answer.groups or (answer,)
    return (
        sum(
            len(one.metadata or "")
            for group in groups
            for topic in group.topics
            for one in topic.partitions
        )
        > METADATA_MAX
    )


def without_offsets(answer: OffsetFetchResponse) -> OffsetFetchResponse:
    """The answer that says only that they are too long together."""
    code = int(ErrorCode.MESSAGE_TOO_LARGE)
    if not answer.groups:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id=one.group_id, error_code=code)
            for one in answer.groups
        ]
    )
