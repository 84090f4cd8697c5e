"""OffsetForLeaderEpoch 2-4: where a leader epoch ended (KIP-101, KIP-279, KIP-320).

v2 fences clients with other leader epochs, v3 tells the asking replica's id, v4 is flexible.
Followers do not ask here: replicas ask one another over links.
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.gateway.answers import REPLICA_TIMEOUT_MS, PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.plain import cut
from raylog.actors.replica.api import EPOCH_END
from raylog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(context: RequestContext, request: OffsetForLeaderEpochRequest) -> None:
    """Ask the leader of each partition; each succeeds or fails on its own."""
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
        cluster = context.gateway.cluster
        topic = cluster.topic_named(name)
        route = cluster.route(topic, part.partition)
        return Question(
            route.link,
            EPOCH_END,
            (topic.topic_id, part.partition, part.current_leader_epoch, part.leader_epoch),
        )

    def found(what: tuple[int, int]) -> None:
        answer.leader_epoch, answer.end_offset = cut(what, 2)

    answers.ask(answer, question, found)
