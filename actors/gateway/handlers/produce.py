"""Produce 3-13: batches to the replicas that lead their partitions.

v10 tells the current leader with NOT_LEADER_OR_FOLLOWER (KIP-951), v13 has topic ids (KIP-516).
The batch stays bytes: header and CRC are checked here, offsets are assigned by the replica.
Left out: transactional verification, which comes with the transaction coordinator.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.actors.failures import error_code_of, message_of
from raylog.actors.gateway.cluster_facts import INTERNAL_TOPICS
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.leader_hints import leader_hint, node_endpoints
from raylog.actors.metadata.image import Topic
from raylog.actors.ports import TopicId
from raylog.actors.replica.api import PRODUCE
from raylog.actors.runtime.base import PeerTimeout
from raylog.wire.errors import InvalidRequiredAcks, InvalidTopicException, KafkaError
from raylog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from raylog.wire.records import check_produced

TOPIC_IDS_SINCE = 13
ACKS = (-1, 0, 1)
DEADLINE_GRACE_MS = 5_000
"""Beyond the client's own timeout, for a replica that hangs."""


def produce(context: RequestContext, request: ProduceRequest) -> None:
    """Append each partition's batch; each succeeds or fails on its own."""
    _Produce(context, request).begin(request.topic_data)


class _Produce:
    """One Produce request on its way: counts what is still unanswered."""

    __slots__ = ("_acks", "_context", "_due", "_failed", "_left", "_now_ms", "_response")

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._context = context
        self._acks = request.acks
        self._now_ms = context.gateway.runtime.now_ms()
        self._left = 1
        # Texts, not exceptions: a traceback would keep this object and all buffers on its way.
        self._failed: list[str] = []
        self._response = ProduceResponse(responses=[])
        self._due = context.gateway.deadlines.add(self, request.timeout_ms + DEADLINE_GRACE_MS)

    def begin(self, topics: list[TopicProduceData]) -> None:
        """Send everything on its way; the answer follows when all of it is settled."""
        for data in topics:
            self._topic(data)
        self._one_done()

    def _topic(self, data: TopicProduceData) -> None:
        answers: list[PartitionProduceResponse] = []
        self._response.responses.append(
            TopicProduceResponse(
                name=data.name, topic_id=data.topic_id, partition_responses=answers
            )
        )
        cluster = self._context.gateway.cluster
        for part in data.partition_data:
            answer = PartitionProduceResponse(index=part.index, base_offset=-1)
            answers.append(answer)
            try:
                if self._acks not in ACKS:
                    raise InvalidRequiredAcks(f"acks {self._acks}: -1, 0 or 1 is expected")
                if self._context.version >= TOPIC_IDS_SINCE:
                    topic = cluster.topic(TopicId(data.topic_id))
                else:
                    topic = cluster.topic_named(data.name)
                if topic.name in INTERNAL_TOPICS:
                    raise InvalidTopicException(f"clients may not write to {topic.name}")
                self._partition(topic, part, answer)
            except KafkaError as failure:
                self._fail(answer, failure)

    def _partition(
        self, topic: Topic, part: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        gateway = self._context.gateway
        route = gateway.cluster.route(topic, part.index)
        batch = part.records
        if batch is None:
            batch = memoryview(b"")
        assert isinstance(batch, memoryview), "record data is decoded as a view"
        header = check_produced(batch)
        batch = gateway.rules.of(topic).admit(batch, header, self._now_ms)

        def answered(where: list[int], _payload: memoryview) -> None:
            answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = where
            self._one_done()

        self._left += 1
        route.link.request(
            PRODUCE,
            (topic.topic_id, part.index, route.leader_epoch, self._acks),
            (batch,),
            answered,
            self._failer(answer),
        )

    def _failer(self, answer: PartitionProduceResponse) -> Callable[[Exception], None]:
        def failed(failure: Exception) -> None:
            self._fail(answer, failure)
            self._one_done()

        return failed

    def _fail(self, answer: PartitionProduceResponse, failure: Exception) -> None:
        answer.error_code = int(error_code_of(failure))
        answer.error_message = message_of(failure)
        self._failed.append(str(failure))

    def timed_out(self) -> None:
        """Answer without the partitions that did not."""
        late = PeerTimeout("the partition's leader did not answer in time")
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.base_offset < 0 and not answer.error_code:
                    self._fail(answer, late)
        self._finish()

    def _one_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._due.discard(self)
            self._finish()

    def _finish(self) -> None:
        self._left = -1
        if self._acks == 0:
            self._finish_silently()
            return
        if self._failed and self._context.version >= 10:
            self._add_hints()
        self._context.reply(self._response)

    def _finish_silently(self) -> None:
        """Close the connection on an error: a client with acks=0 learns of none otherwise."""
        if self._failed:
            self._context.refuse(f"produce with acks=0 failed: {self._failed[0]}")
        else:
            self._context.no_reply()

    def _add_hints(self) -> None:
        cluster = self._context.gateway.cluster
        hinted = []
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                known = cluster.image.topics.get(TopicId(topic.topic_id)) or cluster.image.topic(
                    topic.name
                )
                answer.current_leader = leader_hint(known, answer.index, answer.error_code)
                hinted.append(answer.current_leader)
        self._response.node_endpoints = node_endpoints(cluster.image, hinted)
