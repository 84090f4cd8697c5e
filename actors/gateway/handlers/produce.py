"""Produce 3-13: sends batches to the replicas that lead their partitions.

v10 adds the current leader to NOT_LEADER_OR_FOLLOWER (KIP-951), v13 topic ids (KIP-516). A batch
stays bytes: its header and CRC are checked here, and the replica assigns offsets. The replica also
checks whether a batch belongs to a transaction (KIP-890); from v12 on leaders add their partitions
to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from raylog.actors.common_messages import TopicId
from raylog.actors.failures import error_code_of, message_of
from raylog.actors.gateway.cluster import OpenRoute
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.rules.cluster_facts import INTERNAL_TOPICS
from raylog.actors.gateway.rules.leader_hints import leader_hint, node_endpoints
from raylog.actors.gateway.rules.refused_sequences import Sequence, sequence_of
from raylog.actors.gateway.topic_rules import LIGHT_REQUEST_RECORDS_MAX
from raylog.actors.metadata.image import Topic
from raylog.actors.replica.messages import (
    PRODUCE,
    PRODUCE_IN_TRANSACTION,
    ProduceAnswer,
    ProducePart,
    TransactionalWrite,
    produced,
)
from raylog.actors.runtime.base import Link, PeerTimeout
from raylog.actors.runtime.deadlines import Due
from raylog.wire.errors import (
    InvalidProducerIdMapping,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    NotLeaderOrFollower,
    TransactionalIdAuthorizationFailed,
)
from raylog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from raylog.wire.records import NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader, check_produced
from raylog.wire.walk import Patience

TOPIC_IDS_SINCE = 13
ADDS_PARTITIONS_SINCE = 12
"""Transaction version 2: a write adds its partition to the transaction."""
ABORTABLE_SINCE = 11
"""From this version on, clients know TRANSACTION_ABORTABLE."""
ANSWERED = -(1 << 30)
"""Replaces the countdown: replicas that answer too late count down from here."""
ACKS = (-1, 0, 1)
ANY_EPOCH = -1
"""Accepted from any leader. Produce has no leader epochs, because clients cannot recover from an
error about them: if a batch is refused while the gateway is behind, and the next one is not, there
is a gap in the producer's sequence."""
TAKEN_IN = 20
"""Separating this many topics and batches takes as long as checking one batch."""
PARTS_MAX = 250
"""Maximum batches in one request to a replica process, which handles them in one go."""
RECORD_ERRORS_MAX = 1_000
"""Maximum refused records named in one response (KIP-467); Apache Kafka names all."""
DEADLINE_GRACE_MS = 5_000
"""Added to the client's timeout, in case a replica hangs."""


def produce(context: RequestContext, request: ProduceRequest) -> None:
    """Append each partition's batch; each succeeds or fails independently."""
    _Produce(context, request).begin(request.topic_data)


class _Send:
    """The part of a Produce request for one Replica actor."""

    __slots__ = ("_produce", "answers", "batches", "parts", "sequences")

    def __init__(self, produce: _Produce) -> None:
        self._produce = produce
        self.parts: list[ProducePart] = []
        self.batches: list[memoryview] = []
        self.answers: list[PartitionProduceResponse] = []
        self.sequences: list[Sequence | None] = []

    def answered(self, outcomes: list[list[Any]], _payload: memoryview) -> None:
        for at, (answer, outcome) in enumerate(zip(self.answers, outcomes, strict=True)):
            try:
                where = produced(outcome)
            except KafkaError as failure:
                self._produce.fail(answer, failure, self.sequences[at])
            else:
                self._produce.written(answer, where, self.sequences[at])
        self._produce.one_done()

    def failed(self, failure: Exception) -> None:
        for answer, sequence in zip(self.answers, self.sequences, strict=True):
            self._produce.fail(answer, failure, sequence)
        self._produce.one_done()


class _Produce:
    """A Produce request in progress, with a countdown of its unanswered parts."""

    __slots__ = (
        "_acks",
        "_context",
        "_due",
        "_errors_left",
        "_failed",
        "_full",
        "_gathered",
        "_left",
        "_now_ms",
        "_patience",
        "_producer",
        "_refusal",
        "_response",
        "_sends",
        "_timeout_ms",
        "_transactional_id",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._context = context
        self._acks = request.acks
        self._now_ms = context.gateway.runtime.now_ms()
        self._patience = Patience(LIGHT_REQUEST_RECORDS_MAX)
        self._left = 1
        self._transactional_id = request.transactional_id
        self._producer: tuple[int, int] | None = None  # of its transactional batches
        self._refusal: KafkaError | None = None  # of the whole request
        # Texts, not exceptions, as a traceback would keep this object and all buffers alive.
        self._failed: list[str] = []
        self._response = ProduceResponse(responses=[])
        self._sends: dict[Link, _Send] = {}
        self._full: tuple[tuple[Link, _Send], ...] = ()
        """Parts that are full."""
        self._gathered = False
        """Whether everything has been checked."""
        self._errors_left = RECORD_ERRORS_MAX
        self._timeout_ms = request.timeout_ms
        self._due = Due()

    def begin(self, topics: list[TopicProduceData]) -> None:
        """Send everything; the response follows when all of it is settled."""
        self._context.in_turns(self._steps(topics), self.one_done)

    def _steps(self, topics: list[TopicProduceData]) -> Iterator[int]:
        """Check everything before anything is sent, since the request may be refused as a whole.

        Then the timeout starts, and the response covers every batch. If a partition is named twice,
        its last batch counts, as in Apache Kafka, and gets the only result.
        """
        asked: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
        taken = 0
        for data in topics:
            parts = asked.setdefault((data.name, data.topic_id), {})
            parts.update({part.index: part for part in data.partition_data})
            items, taken = divmod(taken + 1 + len(data.partition_data), TAKEN_IN)
            yield items
        for (name, topic_id), parts in asked.items():
            yield from self._topic(name, topic_id, parts.values())
        self._due = self._context.gateway.deadlines.add(
            self, max(self._timeout_ms, 0) + DEADLINE_GRACE_MS
        )
        self._gathered = True
        if self._refusal is None:
            yield from self._send()
        else:
            self._refuse_all(self._refusal)

    def _send(self) -> Iterator[int]:
        """Send the collected batches to the replicas; yield how many each request has."""
        sends, self._sends = [*self._full, *self._sends.items()], {}
        self._full = ()
        self._left += len(sends)
        for link, send in sends:
            header: tuple[object, ...] = (self._acks, self._timeout_ms, send.parts)
            kind = PRODUCE
            if self._producer is not None:
                kind = PRODUCE_IN_TRANSACTION
                header = (*header, self._transaction())
            asking = partial(link.request, kind, header, send.batches, send.answered, send.failed)
            self._context.gateway.backlog.send(link, self._context, asking)
            yield len(send.parts)

    def _transaction(self) -> TransactionalWrite:
        assert self._transactional_id is not None, "transactional batches without it are refused"
        version = self._context.version
        return TransactionalWrite(
            self._transactional_id,
            adds=version >= ADDS_PARTITIONS_SINCE,
            knows_abortable=version >= ABORTABLE_SINCE,
        )

    def _refuse_all(self, refusal: KafkaError) -> None:
        """Fail all partitions; nothing of the request is written."""
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                self.fail(answer, refusal)

    def _in_transaction(self, header: BatchHeader) -> None:
        """Check a transactional batch: all need an id and the same producer, or none is written."""
        if self._transactional_id is None:
            self._refusal = TransactionalIdAuthorizationFailed(
                "transactional records without a transactional id"
            )
            return
        if header.producer_id < 0:
            return
        producer = (header.producer_id, header.producer_epoch)
        if self._producer not in (None, producer):
            self._refusal = InvalidProducerIdMapping(
                "Transactional records contained more than one producer ID"
            )
        self._producer = producer

    def _topic(
        self, name: str, topic_id: bytes, parts: Iterable[PartitionProduceData]
    ) -> Iterator[int]:
        answers: list[PartitionProduceResponse] = []
        self._response.responses.append(
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers)
        )
        cluster = self._context.gateway.cluster
        for part in parts:
            answer = PartitionProduceResponse(index=part.index, base_offset=-1)
            answers.append(answer)
            try:
                if self._acks not in ACKS:
                    raise InvalidRequiredAcks(f"acks {self._acks}: -1, 0 or 1 is expected")
                if self._context.version >= TOPIC_IDS_SINCE:
                    topic = cluster.topic(TopicId(topic_id))
                else:
                    topic = cluster.topic_named(name)
                if topic.name in INTERNAL_TOPICS:
                    raise InvalidTopicException(f"clients may not write to {topic.name}")
                self._partition(topic, part, answer)
            except KafkaError as failure:
                self.fail(answer, failure)
            yield 1
        yield 1

    def _partition(
        self, topic: Topic, part: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        gateway = self._context.gateway
        batch = part.records
        if batch is None:
            batch = memoryview(b"")
        assert isinstance(batch, memoryview), "record data is decoded as a view"
        header = check_produced(batch)
        if header.attributes & TRANSACTIONAL_BIT:
            self._in_transaction(header)
        sequence = sequence_of(topic.topic_id, part.index, header)
        try:
            route = gateway.cluster.route(topic, part.index)
        except NotLeaderOrFollower as refusal:
            self.fail(answer, refusal, sequence)
            return
        if (topic.topic_id, part.index) in gateway.lanes:
            self._aside(topic, batch, header, answer, takes_long=False)
            return
        rules = gateway.rules.of(topic)
        stored = rules.admit_at_once(batch, header, self._now_ms, self._patience)
        if stored is None:
            self._aside(topic, batch, header, answer, takes_long=True)
        else:
            self._add(topic, route, stored, answer, sequence)

    def _add(
        self,
        topic: Topic,
        route: OpenRoute,
        batch: memoryview,
        answer: PartitionProduceResponse,
        sequence: Sequence | None,
    ) -> None:
        """Add a batch to the request for its leader's process."""
        send = self._sends.get(route.link)
        if send is None or len(send.parts) >= PARTS_MAX:
            if send is not None:
                self._full = (*self._full, (route.link, send))
            send = self._sends[route.link] = _Send(self)
        refused = self._context.connection.refused_sequences
        before = refused.before(sequence) if refused and sequence is not None else NO_SEQUENCE
        send.parts.append(ProducePart(topic.topic_id, answer.index, ANY_EPOCH, len(batch), before))
        send.batches.append(batch)
        send.answers.append(answer)
        send.sequences.append(sequence)

    def _aside(
        self,
        topic: Topic,
        batch: memoryview,
        header: BatchHeader,
        answer: PartitionProduceResponse,
        *,
        takes_long: bool,
    ) -> None:
        """Check a batch in a thread, and send it after the earlier ones of its partition.

        A batch whose check ends before everything has been checked is sent with the others.
        """
        gateway = self._context.gateway
        rules = gateway.rules.of(topic)
        sequence = sequence_of(topic.topic_id, answer.index, header)

        def admitted(stored: memoryview) -> None:
            if self._refusal is not None:
                failed(self._refusal)
                return
            try:
                route = gateway.cluster.route(topic, answer.index)
            except KafkaError as failure:
                failed(failure)
                return
            self._add(topic, route, stored, answer, sequence)
            if self._gathered:
                for _ in self._send():
                    pass
            self.one_done()

        def failed(failure: Exception) -> None:
            self.fail(answer, failure, sequence)
            self.one_done()

        self._left += 1
        gateway.lanes.enter(
            (topic.topic_id, answer.index),
            partial(
                rules.admit_aside,
                gateway.runtime,
                batch,
                header,
                self._now_ms,
                takes_long=takes_long,
            ),
            admitted,
            failed,
        )

    def fail(
        self,
        answer: PartitionProduceResponse,
        failure: Exception,
        sequence: Sequence | None = None,
    ) -> None:
        """Record that a partition failed; `sequence` identifies an idempotent producer's batch."""
        code = error_code_of(failure)
        if sequence is not None:
            code = self._context.connection.refused_sequences.note(sequence, code)
        if self._is_answered:
            return
        answer.error_code = int(code)
        answer.error_message = message_of(failure)
        if isinstance(failure, KafkaError) and failure.record_errors:
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=why)
                for position, why in failure.record_errors[: self._errors_left]
            ]
            self._errors_left -= len(answer.record_errors)
        self._failed.append(str(failure))

    def written(
        self, answer: PartitionProduceResponse, where: ProduceAnswer, sequence: Sequence | None
    ) -> None:
        """Record that a batch was written."""
        refused = self._context.connection.refused_sequences
        if refused and sequence is not None:
            refused.written(sequence)
        if not self._is_answered:
            answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = where

    @property
    def _is_answered(self) -> bool:
        """Whether the response is final: a thread may be encoding it."""
        return self._left < 0

    def timed_out(self) -> None:
        """Answer without the partitions that have not responded."""
        late = PeerTimeout("the partition's leader did not answer in time")
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.base_offset < 0 and not answer.error_code:
                    self.fail(answer, late)
        self._finish()

    def one_done(self) -> None:
        """Count down, and answer the client at zero."""
        self._left -= 1
        if self._left == 0:
            self._due.discard(self)
            self._finish()

    def _finish(self) -> None:
        self._left = ANSWERED
        if self._acks == 0:
            self._finish_silently()
            return
        if self._failed and self._context.version >= 10:
            self._add_hints()
        if self._failed:
            self._context.reply(self._response)
        else:
            self._context.reply_well(self._response)

    def _finish_silently(self) -> None:
        """Close the connection on an error, which clients with acks=0 would miss otherwise."""
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
        self._response.node_endpoints = node_endpoints(
            cluster.image, hinted, self._context.listener
        )
