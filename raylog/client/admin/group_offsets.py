"""Committed offsets of groups: OffsetFetch v1-10 and OffsetCommit v2-10."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raylog.client.cluster import CommittedOffset, TopicPartition, by_topic, commit_of
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.coordinators import Coordinators, GroupAnswers, ask_coordinators
from raylog.client.core import Core
from raylog.client.matching import answers_to, distinct_answers, named
from raylog.client.refusals import refusal
from raylog.client.retries import worst_refusal
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from raylog.wire.uuids import ZERO_UUID

OFFSETS_BY_NAME = 9
"""Newest version of OffsetCommit and OffsetFetch with topic names; deleted topics have no id."""
NO_OFFSET = -1
_OFFSETS_OF_GROUPS_SINCE = 8
"""First OffsetFetch version that accepts several groups (KIP-709)."""
Committed = dict[TopicPartition, CommittedOffset]
TopicIds = Mapping[str, bytes]
NO_IDS: TopicIds = {}
"""No ids: topics are given by name."""


async def offsets_of_groups(
    core: Core,
    coordinators: Coordinators,
    group_ids: Sequence[str],
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[str, Committed | KafkaError]:
    """Return the committed offsets of groups in some partitions (None: in all that have one).

    Each coordinator gets one request, or one per group if a coordinator is too old for several.
    """
    keys = None if partitions is None else by_topic(partitions)
    found: dict[str, Committed | KafkaError] = {}
    for some in await _together(core, coordinators, group_ids):
        found |= await _ask(core, coordinators, some, keys, require_stable=require_stable)
    return found


async def _together(
    core: Core, coordinators: Coordinators, group_ids: Sequence[str]
) -> list[list[str]]:
    """Split groups into lists that can be asked about at once."""
    if len(group_ids) > 1:
        nodes = await core.repeat(lambda: coordinators.find(group_ids))
        versions = [await core.version_on(one, ApiKey.OFFSET_FETCH) for one in set(nodes.values())]
        if min(versions) < _OFFSETS_OF_GROUPS_SINCE:
            return [[group_id] for group_id in group_ids]
    return [list(group_ids)] if group_ids else []


async def _ask(
    core: Core,
    coordinators: Coordinators,
    group_ids: list[str],
    keys: Mapping[str, list[TopicPartition]] | None,
    *,
    require_stable: bool,
) -> dict[str, Committed | KafkaError]:
    def request(group_ids: list[str], version: int) -> OffsetFetchRequest:
        return offset_fetch(group_ids, keys, version, require_stable=require_stable)

    def answers(response: OffsetFetchResponse) -> GroupAnswers[Committed]:
        for group in response.groups:
            yield group.group_id, _committed(group.group_id, group.error_code, group.topics, keys)
        if not response.groups and len(group_ids) == 1:  # an old version, for one group
            yield group_ids[0], _committed(group_ids[0], response.error_code, response.topics, keys)

    return await ask_coordinators(
        core,
        coordinators,
        group_ids,
        request,
        OffsetFetchResponse,
        answers,
        at_most=OFFSETS_BY_NAME,
    )


def offset_fetch(
    group_ids: Sequence[str],
    keys: Mapping[str, list[TopicPartition]] | None,
    version: int,
    *,
    require_stable: bool,
    ids: TopicIds = NO_IDS,
    member: GroupMetadata | None = None,
) -> OffsetFetchRequest:
    """Return an OffsetFetch request for groups in some topics' partitions (None: in all).

    `member` is the member that asks, whose epoch is checked. Versions before 8 are for one group.
    """
    indexes = {
        topic: [key.partition for key in of_topic] for topic, of_topic in (keys or {}).items()
    }
    if version < _OFFSETS_OF_GROUPS_SINCE:
        asked = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in indexes.items()
        ]
        topics = None if keys is None else asked
        (group_id,) = group_ids
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
    in_groups = [
        OffsetFetchRequestTopics(
            name=topic, topic_id=ids.get(topic, ZERO_UUID), partition_indexes=partitions
        )
        for topic, partitions in indexes.items()
    ]
    groups = [
        OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=None if member is None else member.member_id,
            member_epoch=-1 if member is None else member.generation_id,
            topics=None if keys is None else in_groups,
        )
        for group_id in group_ids
    ]
    return OffsetFetchRequest(groups=groups, require_stable=require_stable)


def committed_in(
    response: OffsetFetchResponse,
    group_id: str,
    asked: Mapping[str, list[TopicPartition]],
    ids: TopicIds,
) -> Committed | KafkaError:
    """Return the answer about one group."""
    if not response.groups:  # an old version, for one group
        return _committed(group_id, response.error_code, response.topics, asked)
    found = answers_to([group_id], ((one.group_id, one) for one in response.groups), named("group"))
    return _committed(group_id, found[group_id].error_code, found[group_id].topics, asked, ids)


def _committed(
    group_id: str,
    code: int,
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
    asked: Mapping[str, list[TopicPartition]] | None,
    ids: TopicIds = NO_IDS,
) -> Committed | KafkaError:
    """Convert one group's answer."""
    error = refusal(code, f"group {group_id!r}")
    if error is not None:
        return error
    names = _names(ids)
    pairs = (
        (_key(topic, names, answer.partition_index), answer)
        for topic in topics
        for answer in topic.partitions
    )
    answers = (
        distinct_answers(pairs)
        if asked is None
        else answers_to((key for of_topic in asked.values() for key in of_topic), pairs)
    )
    error = worst_refusal(
        (answer.error_code, f"{key} of group {group_id!r}") for key, answer in answers.items()
    )
    return error or {
        key: CommittedOffset(
            answer.committed_offset, answer.committed_leader_epoch, answer.metadata or ""
        )
        for key, answer in answers.items()
        if answer.committed_offset != NO_OFFSET
    }


def offset_commit(
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, CommittedOffset | int],
    ids: TopicIds = NO_IDS,
) -> OffsetCommitRequest:
    """Return an OffsetCommit request, on behalf of a member or of no member."""
    return OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids.get(topic, ZERO_UUID),
                partitions=[
                    commit_of(OffsetCommitRequestPartition, key, offsets[key]) for key in keys
                ],
            )
            for topic, keys in by_topic(offsets).items()
        ],
    )


def commit_refusal(
    response: OffsetCommitResponse,
    group_id: str,
    asked: Iterable[TopicPartition],
    ids: TopicIds = NO_IDS,
) -> KafkaError | None:
    """Return the worst error in the answer to a commit, or None."""
    names = _names(ids)
    codes_by_pair = (
        (_key(topic, names, answer.partition_index), answer.error_code)
        for topic in response.topics
        for answer in topic.partitions
    )
    codes = answers_to(asked, codes_by_pair).items()
    return worst_refusal((code, f"commit of {key} of group {group_id!r}") for key, code in codes)


def _names(ids: TopicIds) -> dict[bytes, str]:
    """Return topic names by topic id."""
    return {topic_id: name for name, topic_id in ids.items()}


def _key(
    topic: OffsetCommitResponseTopic | OffsetFetchResponseTopic | OffsetFetchResponseTopics,
    names: Mapping[bytes, str],
    partition: int,
) -> TopicPartition:
    """Return a partition in an answer, which may have the topic's id instead of its name."""
    if topic.name or isinstance(topic, OffsetFetchResponseTopic):
        return TopicPartition(topic.name, partition)
    return TopicPartition(names.get(topic.topic_id) or topic.topic_id.hex(), partition)
