"""Committed offsets of groups, asked of their coordinators. OffsetFetch v1-9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raylog.client.cluster import CommittedOffset, TopicPartition, by_topic
from raylog.client.coordinators import Coordinators, GroupAnswers, ask_coordinators
from raylog.client.core import Core
from raylog.client.matching import answers_to, distinct_answers
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

OFFSETS_BY_NAME = 9
"""Newest version of OffsetCommit and OffsetFetch with topic names: deleted topics have no id."""
NO_OFFSET = -1
_OFFSETS_OF_GROUPS_SINCE = 8
"""OffsetFetch version that asks for several groups (KIP-709)."""
Committed = dict[TopicPartition, CommittedOffset]


async def offsets_of_groups(
    core: Core,
    coordinators: Coordinators,
    group_ids: Sequence[str],
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[str, Committed | KafkaError]:
    """Committed offsets of groups in some partitions (None: in all), without those that have none.

    Each coordinator gets one request; one that is too old for several groups gets one for each.
    """
    keys = None if partitions is None else by_topic(partitions)
    found: dict[str, Committed | KafkaError] = {}
    for some in await _together(core, coordinators, group_ids):
        found |= await _ask(core, coordinators, some, keys, require_stable=require_stable)
    return found


async def _together(
    core: Core, coordinators: Coordinators, group_ids: Sequence[str]
) -> list[list[str]]:
    """Groups that can be asked about at the same time."""
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
        return _offset_fetch(group_ids, keys, version, require_stable=require_stable)

    def answers(response: OffsetFetchResponse) -> GroupAnswers[Committed]:
        for group in response.groups:
            yield group.group_id, _committed(group.group_id, group.error_code, group.topics, keys)
        if not response.groups and len(group_ids) == 1:  # of a version for one group
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


def _offset_fetch(
    group_ids: list[str],
    keys: Mapping[str, list[TopicPartition]] | None,
    version: int,
    *,
    require_stable: bool,
) -> OffsetFetchRequest:
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
        OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
        for topic, partitions in indexes.items()
    ]
    groups = [
        OffsetFetchRequestGroup(group_id=group_id, topics=None if keys is None else in_groups)
        for group_id in group_ids
    ]
    return OffsetFetchRequest(groups=groups, require_stable=require_stable)


def _committed(
    group_id: str,
    code: int,
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
    asked: Mapping[str, list[TopicPartition]] | None,
) -> Committed | KafkaError:
    """One group's answer."""
    if code != ErrorCode.NONE:
        return error_of(code, f"group {group_id!r}")
    told = (
        (TopicPartition(topic.name, answer.partition_index), answer)
        for topic in topics
        for answer in topic.partitions
    )
    answers = (
        distinct_answers(told)
        if asked is None
        else answers_to((key for of_topic in asked.values() for key in of_topic), told)
    )
    found = {}
    for key, answer in answers.items():
        if answer.error_code != ErrorCode.NONE:
            return error_of(answer.error_code, f"{key} of group {group_id!r}")
        if answer.committed_offset != NO_OFFSET:
            found[key] = CommittedOffset(
                answer.committed_offset, answer.committed_leader_epoch, answer.metadata or ""
            )
    return found
