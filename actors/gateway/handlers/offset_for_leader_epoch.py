"""OffsetForLeaderEpoch 2-4: the end of a leader epoch (KIP-101, KIP-279, KIP-320).

v2 fences clients with other leader epochs, v3 adds the id of the requesting replica, v4 is
flexible. Followers do not ask here, but other replicas over links.
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.gateway.answers import REPLICA_TIMEOUT_MS, PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.message import first_values
from raylog.actors.replica.messages import EPOCH_END
from raylog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(context: RequestContext, request: OffsetForLeaderEpochRequest) -> None:
    """Ask the leader of each partition; each succeeds or fails independently."""
    response = OffsetForLeaderEpochResponse()
    answers = PartitionAnswers(context, response, REPLICA_TIMEOUT_MS)

    def each() -> Iterator[int]:
        for topic in request.topics:
            answered = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(answered)
            yield 1
            for part in topic.partitions:
                answer = EpochEndOffset(partition=part.partition)
                answered.partitions.append(answer)
                _ask(context, answers, topic.topic, part, answer)
                yield 1

    context.in_turns(each(), answers.done)


def _ask(
    context: RequestContext,
    answers: PartitionAnswers,
    name: str,
    part: OffsetForLeaderPartition,
    answer: EpochEndOffset,
) -> None:
    def question() -> Question:
        topic, link = context.gateway.cluster.led(name, part.partition)
        return Question(
            link,
            EPOCH_END,
            (topic.topic_id, part.partition, part.current_leader_epoch, part.leader_epoch),
        )

    def found(what: tuple[int, int]) -> None:
        answer.leader_epoch, answer.end_offset = first_values(what, 2)

    answers.ask(answer, question, found)
