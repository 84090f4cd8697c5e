"""OffsetFetch for all offsets of a group: every partition with a committed offset, as in Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from raylog.actors.group.rules.existing import ExistingTopics
from raylog.actors.group.rules.gradual import GradualResponse
from raylog.actors.group.rules.offset_store import Topics
from raylog.actors.group.rules.pending import StoredOffset
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
"""Maximum characters of metadata in one response; Apache Kafka has no limit."""


def all_offsets(
    existing: ExistingTopics,
    stored: Topics,
    unstable: Collection[tuple[str, int]],
    group_id: str,
    version: int,
) -> GradualResponse[OffsetFetchResponseGroup]:
    """Return all committed offsets; partitions with only pending ones are left out.

    The steps raise MessageTooLarge if the metadata is too long in total.
    """
    answer = OffsetFetchResponseGroup(group_id=group_id)
    now = {name: partitions.copy() for name, partitions in stored.items()}
    return GradualResponse(
        answer, _each(answer.topics, existing, now, frozenset(unstable), version)
    )


def _each(
    topics: list[OffsetFetchResponseTopics],
    existing: ExistingTopics,
    stored: Topics,
    unstable: Collection[tuple[str, int]],
    version: int,
) -> Iterator[int]:
    left = METADATA_MAX
    for name, partitions in stored.items():
        topic_answer: OffsetFetchResponseTopics | None = None
        for index, one in partitions.items():
            yield 1
            if not existing.have(name, one):
                continue
            if topic_answer is None:
                topic_answer = _topic(existing, name, version)
                topics.append(topic_answer)
            left -= len(one.metadata)
            if left < 0:
                raise MessageTooLarge(
                    f"offsets with more than {METADATA_MAX} characters of metadata"
                )
            is_unstable = (name, index) in unstable
            topic_answer.partitions.append(refused(index) if is_unstable else fetched(index, one))


def _topic(existing: ExistingTopics, name: str, version: int) -> OffsetFetchResponseTopics:
    if version < TOPIC_IDS_SINCE:
        return OffsetFetchResponseTopics(name=name, topic_id=ZERO_UUID)
    return OffsetFetchResponseTopics(name="", topic_id=existing.image.topic_ids[name])


def refused(index: int) -> OffsetFetchResponsePartitions:
    """Return the result for a partition with a pending offset (KIP-447)."""
    return fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def fetched(
    index: int, stored: StoredOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    """Return one partition's offset, or -1 if there is none."""
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


def as_single(
    found: GradualResponse[OffsetFetchResponseGroup],
) -> GradualResponse[OffsetFetchResponse]:
    """Convert the response about one group to the format of versions up to 7."""
    answer = OffsetFetchResponse()
    return GradualResponse(answer, _as_single(found, answer))


def _as_single(
    found: GradualResponse[OffsetFetchResponseGroup], answer: OffsetFetchResponse
) -> Iterator[int]:
    yield from found.rest
    for topic in found.response.topics:
        topic_answer = OffsetFetchResponseTopic(name=topic.name)
        answer.topics.append(topic_answer)
        for one in topic.partitions:
            topic_answer.partitions.append(
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
    """Whether the metadata in a response for named partitions is too long in total."""
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
    """Build the response that reports only this error."""
    code = int(ErrorCode.MESSAGE_TOO_LARGE)
    if not answer.groups:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id=one.group_id, error_code=code)
            for one in answer.groups
        ]
    )
