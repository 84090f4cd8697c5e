"""DeleteRecords 0-2: moves the start of a log up to an offset (KIP-107). v2 is flexible."""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.gateway.answers import PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.rules.cluster_facts import INTERNAL_TOPICS
from raylog.actors.replica.messages import DELETE_RECORDS
from raylog.wire.errors import InvalidTopicException
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> None:
    """Ask the leader of each partition; each succeeds or fails independently."""
    response = DeleteRecordsResponse()
    answers = PartitionAnswers(context, response, request.timeout_ms)

    def each() -> Iterator[int]:
        seen: set[tuple[str, int]] = set()
        for topic in request.topics:
            answered = DeleteRecordsTopicResult(name=topic.name)
            response.topics.append(answered)
            yield 1
            wanted = {part.partition_index: part for part in topic.partitions}
            for part in wanted.values():
                if (topic.name, part.partition_index) in seen:
                    yield 1
                    continue
                seen.add((topic.name, part.partition_index))
                answer = DeleteRecordsPartitionResult(
                    partition_index=part.partition_index, low_watermark=-1
                )
                answered.partitions.append(answer)
                _ask(context, answers, topic.name, part, answer)
                yield 1

    context.in_turns(each(), answers.done)


def _ask(
    context: RequestContext,
    answers: PartitionAnswers,
    name: str,
    part: DeleteRecordsPartition,
    answer: DeleteRecordsPartitionResult,
) -> None:
    def question() -> Question:
        if name in INTERNAL_TOPICS:
            raise InvalidTopicException(f"records of internal topic {name} cannot be deleted")
        topic, link = context.gateway.cluster.led(name, part.partition_index)
        return Question(link, DELETE_RECORDS, (topic.topic_id, part.partition_index, part.offset))

    def found(log_start_offset: int) -> None:
        answer.low_watermark = log_start_offset

    answers.ask(answer, question, found)
