"""Commits, fetches and expires the offsets of the groups in one shard.

OffsetCommit 2-10 and OffsetFetch 1-10 name topics, from v10 on by id (KIP-848). An offset is
removed with its topic (`existing`), with its group, by OffsetDelete (KIP-496), or when it expires
(KIP-211): after the `retention_time_ms` of an old client, otherwise `offsets.retention.minutes`
after the commit or after the group lost its last member. While a classic group has members, an
offset expires only if they are consumers in a stable generation that do not subscribe to its topic.
It does not expire while an offset of a transaction for the same partition is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from raylog.actors.common_messages import TopicId
from raylog.actors.config.keys import LONG_MAX
from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.all_offsets import TOPIC_IDS_SINCE, all_offsets, fetched, refused
from raylog.actors.group.rules.existing import ExistingTopics
from raylog.actors.group.rules.gradual import GradualResponse
from raylog.actors.group.rules.offset_store import NO_EXPIRY, Topics
from raylog.actors.group.rules.pending import StoredOffset
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.wire.errors import ErrorCode, InvalidCommitOffsetSize, KafkaError
from raylog.wire.internal.offsets import OffsetCommitKey, OffsetCommitValue
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from raylog.wire.uuids import ZERO_UUID

COMMIT_BYTES_MAX = 1_048_588
"""Limit for the names and metadata in a commit's records: the default of `max.message.bytes`.
Apache Kafka answers UNKNOWN_SERVER_ERROR if that is exceeded."""
_WITH_EXPIRY = 1
_WITH_TOPIC_ID = 4
"""Versions of OffsetCommitValue: with an expiry time, and without."""


# ---- commit --------------------------------------------------------------------------------


def commit(
    step: Step,
    call: ClientCall[OffsetCommitRequest],
    check: Callable[[], None],
    metadata_bytes_max: int,
) -> None:
    """Store the offsets of existing partitions; `check` raises if the member may not commit.

    As in Kafka, a request that names only unknown partitions never reaches the group.
    """
    request = call.request
    unknown: list[OffsetCommitResponseTopic] = []
    known: list[tuple[str, OffsetCommitRequestTopic]] = []
    for topic in request.topics:
        name, code = _resolve(step.image, call.version, topic)
        existing = step.image.topic(name)
        good, bad = _by_existence(existing, topic)
        if good.partitions:
            known.append((name, good))
        if bad or existing is None:
            unknown.append(_committed(topic, [(index, code) for index in bad]))
    failure = failure_of(check) if known else None
    if failure is None:
        failure = too_many_bytes(
            request.group_id,
            ((name, one.committed_metadata) for name, topic in known for one in topic.partitions),
        )
    appended = len(step.records)
    outcomes = []
    for name, topic in known:
        codes = []
        for partition in topic.partitions:
            code = ErrorCode.NONE if failure is None else failure.code
            if failure is None and is_too_long(partition.committed_metadata, metadata_bytes_max):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if code is ErrorCode.NONE:
                _append(step, request, name, partition)
            codes.append((partition.partition_index, code))
        outcomes.append(_committed(topic, codes))
    response = OffsetCommitResponse(topics=_merged(unknown, outcomes) if unknown else outcomes)
    (step.answer if len(step.records) > appended else step.answer_now)(call, response)


def _by_existence(
    topic: Topic | None, request: OffsetCommitRequestTopic
) -> tuple[OffsetCommitRequestTopic, list[int]]:
    """Split a request into the existing partitions, and the numbers of the others."""
    count = 0 if topic is None else len(topic.partitions)
    bad = [
        one.partition_index for one in request.partitions if not 0 <= one.partition_index < count
    ]
    if not bad:
        return request, bad
    good = [one for one in request.partitions if 0 <= one.partition_index < count]
    return OffsetCommitRequestTopic(
        name=request.name, topic_id=request.topic_id, partitions=good
    ), bad


def failure_of(check: Callable[[], None]) -> KafkaError | None:
    """Return the error that a check raised, or None."""
    try:
        check()
    except KafkaError as failure:
        return failure
    return None


def _resolve(
    image: MetadataImage, version: int, request: OffsetCommitRequestTopic
) -> tuple[str, ErrorCode]:
    """Return a topic's name, and the error if it or one of its partitions does not exist."""
    if version < TOPIC_IDS_SINCE:
        return request.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = image.topics.get(TopicId(request.topic_id))
    if topic is None:
        return "", ErrorCode.UNKNOWN_TOPIC_ID
    return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def too_many_bytes(group_id: str, commits: Iterable[tuple[str, str | None]]) -> KafkaError | None:
    """Return the error for a commit, or part of one, whose records are too large in total.

    Each record contains the group id, which may take 32 KiB. `commits` has the topic and metadata
    of each record.
    """
    left = COMMIT_BYTES_MAX
    group_bytes = len(group_id.encode())
    for topic, metadata in commits:
        left -= group_bytes + len(topic) + len(metadata or "")
        if left < 0:
            return InvalidCommitOffsetSize(
                f"the offsets of one commit have more than {COMMIT_BYTES_MAX} bytes"
            )
    return None


def is_too_long(metadata: str | None, metadata_bytes_max: int) -> bool:
    """Whether a commit's metadata is too long, in UTF-16 units as in Java."""
    if not metadata:
        return False
    return len(metadata.encode("utf-16-be", "surrogatepass")) > 2 * metadata_bytes_max


def _committed(
    topic: OffsetCommitRequestTopic, codes: list[tuple[int, ErrorCode]]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=int(code))
            for index, code in codes
        ],
    )


def _append(
    step: Step, request: OffsetCommitRequest, topic: str, partition: OffsetCommitRequestPartition
) -> None:
    expires = request.retention_time_ms >= 0
    key = OffsetCommitKey(group=request.group_id, topic=topic, partition=partition.partition_index)
    value = OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=-1 if expires else partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=step.now_ms,
        expire_timestamp=min(step.now_ms + request.retention_time_ms, LONG_MAX)
        if expires
        else NO_EXPIRY,
        topic_id=ZERO_UUID if expires else step.image.topic_ids[topic],
    )
    step.append(key, value, _WITH_EXPIRY if expires else _WITH_TOPIC_ID)


def _merged(
    unknown: list[OffsetCommitResponseTopic], known: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Merge topics so that each occurs once, those with failures first, as in Kafka's responses."""
    topics = {(topic.name, topic.topic_id): topic for topic in unknown}
    for topic in known:
        first = topics.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partitions.extend(topic.partitions)
    return list(topics.values())


# ---- fetch ---------------------------------------------------------------------------------


def fetch(
    existing: ExistingTopics,
    stored: Topics,
    unstable: Collection[tuple[str, int]],
    group: OffsetFetchRequestGroup,
    version: int,
) -> GradualResponse[OffsetFetchResponseGroup]:
    """Fetch the offsets of one group; the offset is -1 if none is stored.

    Offsets of another topic with the same name count as missing in every version; in Kafka, only in
    version 10. Those of `unstable` partitions get UNSTABLE_OFFSET_COMMIT (KIP-447).
    """
    if group.topics is None:
        return all_offsets(existing, stored, unstable, group.group_id, version)
    topics = [_fetch_topic(existing, stored, unstable, topic, version) for topic in group.topics]
    if version >= TOPIC_IDS_SINCE:
        known = existing.image.topics
        topics.sort(key=lambda topic: topic.topic_id not in known)  # in Kafka's order
    return GradualResponse(
        OffsetFetchResponseGroup(group_id=group.group_id, topics=topics), iter(())
    )


def _fetch_topic(
    existing: ExistingTopics,
    stored: Topics,
    unstable: Collection[tuple[str, int]],
    request: OffsetFetchRequestTopics,
    version: int,
) -> OffsetFetchResponseTopics:
    name, code = request.name, ErrorCode.NONE
    if version >= TOPIC_IDS_SINCE:
        topic = existing.image.topics.get(TopicId(request.topic_id))
        name = "" if topic is None else topic.name
        code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.NONE
    partitions = stored.get(name, {}) if code is ErrorCode.NONE else {}

    def current(index: int) -> StoredOffset | None:
        found = partitions.get(index)
        return None if found is None or not existing.have(name, found) else found

    return OffsetFetchResponseTopics(
        name=request.name,
        topic_id=request.topic_id,
        partitions=[
            refused(i)
            if (name, i) in unstable and code is ErrorCode.NONE
            else fetched(i, current(i), code)
            for i in request.partition_indexes
        ],
    )


def as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Return the only group of a request up to version 7."""
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
            for one in topics
        ],
    )


# ---- forgetting ----------------------------------------------------------------------------


def delete(
    step: Step,
    call: ClientCall[OffsetDeleteRequest],
    existing: Collection[tuple[str, int]],
    subscribes: Callable[[str], bool],
) -> None:
    """Handle OffsetDelete: forget offsets of topics that no member subscribes to."""
    unknown: list[OffsetDeleteResponseTopic] = []
    known: list[OffsetDeleteResponseTopic] = []
    for topic in call.request.topics:
        there = step.image.topic(topic.name)
        count = 0 if there is None else len(there.partitions)
        subscribed = subscribes(topic.name)
        good = OffsetDeleteResponseTopic(name=topic.name)
        bad = OffsetDeleteResponseTopic(name=topic.name)
        for index in [one.partition_index for one in topic.partitions]:
            if not 0 <= index < count:
                bad.partitions.append(_deleted(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif subscribed:
                good.partitions.append(_deleted(index, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
            else:
                if (topic.name, index) in existing:
                    forget(step, call.request.group_id, [(topic.name, index)])
                good.partitions.append(_deleted(index, ErrorCode.NONE))
        unknown.extend([bad] if bad.partitions or there is None else [])
        known.extend([good] if good.partitions else [])
    topics = {one.name: one for one in unknown}
    for one in known:
        first = topics.setdefault(one.name, one)
        if first is not one:
            first.partitions.extend(one.partitions)
    step.answer(call, OffsetDeleteResponse(topics=list(topics.values())))


def _deleted(index: int, code: ErrorCode) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(partition_index=index, error_code=int(code))


def forget(step: Step, group_id: str, partitions: Collection[tuple[str, int]]) -> None:
    """Append tombstones."""
    for topic, index in partitions:
        step.append(OffsetCommitKey(group=group_id, topic=topic, partition=index), None)


def all_partitions(
    stored: Topics, pending: Collection[tuple[str, int]]
) -> dict[tuple[str, int], None]:
    """Return all partitions with a stored or pending offset, once each."""
    known = [(topic, index) for topic, partitions in stored.items() for index in partitions]
    return dict.fromkeys((*known, *pending))


def expired(
    stored: Topics,
    pending: Collection[tuple[str, int]],
    now_ms: int,
    retention_ms: int,
    subscribes: Callable[[str], bool],
    counts_from: Callable[[int], int | None],
) -> Iterator[tuple[str, int]]:
    """Yield expired offsets of topics that no member subscribes to.

    `counts_from` returns the time from which an offset's retention counts, given its commit time,
    or None if it does not expire, even if it has an expiry time of its own.
    """
    for topic, partitions in stored.items():
        if subscribes(topic):
            continue
        for index, one in partitions.items():
            since_ms = counts_from(one.commit_timestamp)
            if since_ms is None or (topic, index) in pending:
                continue
            has_own = one.expire_timestamp != NO_EXPIRY
            if now_ms >= (one.expire_timestamp if has_own else since_ms + retention_ms):
                yield topic, index
