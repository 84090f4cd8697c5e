"""WriteTxnMarkers 1-2: markers of transactions, written by the partitions' leaders (KIP-98).

v1 is flexible, v2 carries the transaction version (KIP-1228). Raylog's coordinators use links
instead; this serves tools that end a transaction whose coordinator has forgotten it (KIP-664). A
partition of `__consumer_offsets` goes to this broker's GroupCoordinator, any other to its Replica.
A partition without a replica here is unknown, as in Kafka, even if another broker leads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from raylog.actors.gateway.answers import REPLICA_TIMEOUT_MS, PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.names import GROUP, OFFSETS_TOPIC
from raylog.actors.transaction.messages import (
    ANY_LEADER_EPOCH,
    COMPLETE_TRANSACTION,
    WRITE_MARKERS,
    MarkedPartition,
    Marker,
)
from raylog.wire.errors import ErrorCode, NotLeaderOrFollower
from raylog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NOT_LED = dict.fromkeys(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Maps errors of a group coordinator to those of a leader."""


def write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> None:
    """Ask the leader of each partition; each succeeds or fails independently."""
    response = WriteTxnMarkersResponse()
    answers = PartitionAnswers(context, response, REPLICA_TIMEOUT_MS, NOT_LED)

    def each() -> Iterator[int]:
        for marker in request.markers:
            outcome = WritableTxnMarkerResult(producer_id=marker.producer_id)
            response.markers.append(outcome)
            yield 1
            for topic in marker.topics:
                answered = WritableTxnMarkerTopicResult(name=topic.name)
                outcome.topics.append(answered)
                yield 1
                for index in dict.fromkeys(topic.partition_indexes):
                    answer = WritableTxnMarkerPartitionResult(partition_index=index)
                    answered.partitions.append(answer)
                    one = _One(context, marker, topic.name, answer)
                    answers.ask(answer, one.question, one.taken)
                    yield 1

    context.in_turns(each(), answers.done)


class _One(NamedTuple):
    """The marker for one partition."""

    context: RequestContext
    marker: WritableTxnMarker
    topic: str
    answer: WritableTxnMarkerPartitionResult

    def question(self) -> Question:
        gateway = self.context.gateway
        topic = gateway.cluster.topic_named(self.topic)
        index = self.answer.partition_index
        gateway.cluster.check_held(topic, index)
        link, kind = gateway.cluster.route(topic, index).link, WRITE_MARKERS
        if self.topic == OFFSETS_TOPIC:
            coordinator = gateway.coordinators.link(GROUP)
            if coordinator is None:
                raise NotLeaderOrFollower("the group coordinator is being started")
            link, kind = coordinator, COMPLETE_TRANSACTION
        asked = Marker(
            self.marker.producer_id,
            self.marker.producer_epoch,
            self.marker.coordinator_epoch,
            self.marker.transaction_result,
            self.marker.transaction_version,
            [MarkedPartition(topic.topic_id, index, ANY_LEADER_EPOCH)],
        )
        return Question(link, kind, (asked,))

    def taken(self, codes: list[list[int]]) -> None:
        code = ErrorCode(codes[0][0])
        self.answer.error_code = int(NOT_LED.get(code, code))
