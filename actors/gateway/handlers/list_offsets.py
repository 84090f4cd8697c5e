"""ListOffsets 1-11: offsets by timestamp or by special timestamps (KIP-79).

v2 adds the isolation level (KIP-98), v4 leader epochs (KIP-320), v5 OFFSET_NOT_AVAILABLE from a
leader that does not know its high watermark yet (KIP-207), v7 the offset of the largest timestamp
(KIP-734), v8 and v9 local and tiered offsets (KIP-405, KIP-1005), v11 offsets that wait for upload
(KIP-1023). Left out: tiered storage, so that everything is local and nothing is tiered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from raylog.actors.gateway.answers import REPLICA_TIMEOUT_MS, PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.message import first_values
from raylog.actors.replica import messages as api
from raylog.wire.errors import ErrorCode, InvalidRequest, UnsupportedVersion
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_OFFSET_NOT_AVAILABLE_SINCE = 5
_BEFORE = {ErrorCode.OFFSET_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE}
_SINCE = {
    api.LATEST_TIMESTAMP: 1,
    api.EARLIEST_TIMESTAMP: 1,
    api.MAX_TIMESTAMP: 7,
    api.EARLIEST_LOCAL_TIMESTAMP: 8,
    api.LATEST_TIERED_TIMESTAMP: 9,
    api.EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""Special timestamps, and the version that introduced each."""


def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> None:
    """Ask the leader of each partition; each succeeds or fails independently."""
    response = ListOffsetsResponse()
    old = context.version < _OFFSET_NOT_AVAILABLE_SINCE
    answers = PartitionAnswers(
        context, response, request.timeout_ms or REPLICA_TIMEOUT_MS, _BEFORE if old else None
    )

    def each() -> Iterator[int]:
        mentions: Counter[tuple[str, int]] = Counter()
        for topic in request.topics:
            mentions.update((topic.name, part.partition_index) for part in topic.partitions)
            yield 1 + len(topic.partitions)
        for topic in request.topics:
            asked = {part.partition_index: part for part in topic.partitions}
            answered = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answered)
            yield 1
            for index, part in asked.items():
                answer = ListOffsetsPartitionResponse(partition_index=index)
                answered.partitions.append(answer)
                once = mentions[topic.name, index] == 1
                _ask(context, answers, request, topic.name, part, answer, once=once)
                yield 1

    context.in_turns(each(), answers.done)


def _ask(
    context: RequestContext,
    answers: PartitionAnswers,
    request: ListOffsetsRequest,
    name: str,
    part: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
    *,
    once: bool,
) -> None:
    def question() -> Question:
        if not once:
            raise InvalidRequest(f"partition {part.partition_index} of {name} is named twice")
        _check_timestamp(part.timestamp, context.version)
        topic, link = context.gateway.cluster.led(name, part.partition_index)
        return Question(
            link,
            api.OFFSET_FOR,
            (
                topic.topic_id,
                part.partition_index,
                part.current_leader_epoch,
                part.timestamp,
                request.isolation_level,
            ),
        )

    def found(what: tuple[int, int, int]) -> None:
        answer.offset, answer.timestamp, epoch = first_values(what, 3)
        if context.version >= 4:
            answer.leader_epoch = epoch

    answers.ask(answer, question, found)


def _check_timestamp(timestamp: int, version: int) -> None:
    since = _SINCE.get(timestamp)
    if timestamp < 0 and (since is None or version < since):
        raise UnsupportedVersion(f"version {version} does not know timestamp {timestamp}")
