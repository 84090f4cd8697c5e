"""Link requests that a Replica answers, and their structure.

Every header is a msgpack list that may only be extended at its end (`actors.message`). A partition
is identified by its topic id and index.

| kind           | header                                          | answer's header          |
|----------------|-------------------------------------------------|--------------------------|
| produce        | acks, timeout in ms, list of ProducePart; the   | of each part a Produce-  |
|                | payload is their batches, concatenated          | Answer, or error code    |
|                |                                                 | and message              |
| produce_in_-   | as for produce, and a TransactionalWrite        | as for produce           |
| transaction    |                                                 |                          |
| write_markers  | list of Marker (transaction/messages.py)        | for each Marker, its     |
|                |                                                 | partitions' error codes  |
| fetch          | FetchAsk                                        | list of FetchedPartition |
| fetch_end      | session id, whether to forget it                | None                     |
| offset_for     | topic id, partition, leader epoch, timestamp,   | offset, timestamp, epoch |
|                | isolation level                                 |                          |
| epoch_end      | topic id, partition, leader epoch, asked epoch  | epoch, end offset        |
| delete_records | topic id, partition, offset (-1: all readable)  | log start offset         |
| producers      | topic id, partition                             | packed ProducerInfo      |
| claim          | topic id, partition, leader epoch               | log end offset           |
| replicate      | ReplicateAsk                                    | list of ReplicatedPart;  |
|                |                                                 | the payload is their     |
|                |                                                 | batches in that order    |

Acks are Kafka's, plus UNTIL_COMMITTED for coordinators. It is like acks=all, but a written batch
waits for the high watermark as long as its leader leads, whatever the timeout, even if replicas
leave the ISR meanwhile. So an answer always says whether the batch is committed, except
NOT_LEADER_OR_FOLLOWER, which leaves that open.

A coordinator claims its partition before it reads it. Batches that later arrive over a link with an
older claim are refused: a deposed coordinator must not write after its successor has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from raylog.actors.common_messages import TopicId
from raylog.actors.message import message, taken
from raylog.storage.producers import ProducerInfo
from raylog.wire.errors import error_of
from raylog.wire.records import NO_SEQUENCE

PRODUCE = "produce"
PRODUCE_IN_TRANSACTION = "produce_in_transaction"
FETCH = "fetch"
FETCH_END = "fetch_end"
OFFSET_FOR = "offset_for"
EPOCH_END = "epoch_end"
DELETE_RECORDS = "delete_records"
PRODUCERS = "producers"
CLAIM = "claim"
REPLICATE = "replicate"

ACKS_ALL = -1
UNTIL_COMMITTED = -2
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
READ_COMMITTED = 1


@message
class ProducePart(NamedTuple):
    """One partition's part of a produce request."""

    topic_id: TopicId
    partition: int
    current_leader_epoch: int
    """-1: unknown."""
    length: int
    """Size of its batch in bytes."""
    refused_sequence: int = NO_SEQUENCE
    """First sequence of the same producer and epoch that the sender knows was refused."""


@message
class TransactionalWrite(NamedTuple):
    """Transaction that the transactional batches of one request belong to (KIP-98, KIP-890)."""

    transactional_id: str
    adds: bool
    """Version 2: leaders add their partitions to the transaction. Otherwise they may verify it."""
    knows_abortable: bool
    """Whether the client understands TRANSACTION_ABORTABLE."""


@message
class ProduceAnswer(NamedTuple):
    """Where a batch was appended."""

    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses LogAppendTime."""
    log_start_offset: int


def produced(outcome: Sequence[Any]) -> ProduceAnswer:
    """Decode the answer to one part of a produce request; raises its KafkaError if refused.

    `outcome` is the part's entry in the link's answer.
    """
    if len(outcome) == len(ProduceAnswer._fields):
        return ProduceAnswer._make(outcome)
    if not isinstance(outcome[1], str):
        return taken(ProduceAnswer, outcome)
    code, message, *_ = outcome
    raise error_of(code, message)


@message
class Interest(NamedTuple):
    """One partition that a fetcher wants, from `offset` on."""

    topic_id: TopicId
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int
    """-1: unknown."""
    last_fetched_epoch: int
    """-1: unknown; otherwise checked against the log (KIP-595's diverging epoch)."""
    any_replica: bool = False
    """Whether a follower may answer too (KIP-392)."""


@message
class FetchAsk(NamedTuple):
    """One fetch request of a gateway.

    A session remembers its interests between requests, so a request's cost depends on the changes,
    not on the number of partitions. A newer request answers an older one of the session that still
    waits.
    """

    session_id: int
    once: bool
    """Whether the session ends with this answer."""
    complete: bool
    """Whether to name every partition with news, even those beyond the byte limit."""
    isolation_level: int
    max_bytes: int
    min_bytes: int
    wait: bool
    """Whether to wait for `min_bytes`; the gateway ends the wait with `fetch_end`."""
    changes: list[Any]
    """New or changed Interests."""
    forgotten: list[Any]
    """(topic id, partition) pairs no longer wanted."""


@message
class FetchedPartition(NamedTuple):
    """One partition of a fetch answer: its offsets, and a slice of a segment file."""

    topic_id: TopicId
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    segment_id: str = ""
    position: int = 0
    length: int = 0
    """0: no records yet."""
    aborted: list[Any] | None = None
    """(producer id, first offset) of aborted transactions in the slice, for read_committed."""
    diverging: list[int] | None = None
    """(epoch, end offset) where the fetcher's history diverges from the leader's."""


@message
class ReplicateAsk(NamedTuple):
    """Request of a following process to a leading one, for all partitions it follows there.

    Each link has a session that remembers the interests. A newer request answers an older one that
    still waits. After an answer with records, an error or a divergence, nothing is sent for a
    partition until the follower names it again; after one without records this is not needed.
    """

    broker_id: int
    """Id of the follower."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    changes: list[Any]
    """New or changed ReplicaInterests."""
    forgotten: list[Any]
    """(topic id, partition) pairs no longer followed there."""


@message
class ReplicaInterest(NamedTuple):
    """One partition that a follower wants, from its log end on; it holds everything below."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    """Epoch of its last record; -1: no records, or unknown."""
    log_start_offset: int
    incarnation: str
    """Incarnation of the follower's log (KIP-903)."""
    max_bytes: int


@message
class ReplicatedPart(NamedTuple):
    """One partition's part of an answer to a follower."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    """Epoch in which the follower asked; it ignores answers from an earlier epoch."""
    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: list[int] | None = None
    """(epoch, end offset) where the follower's history diverges from the leader's (KIP-595)."""
    length: int = 0
    """Number of payload bytes that are its batches."""
    claims_end: int = 0
    """Exclusive end of timestamps that may be claims which the leader has not corrected yet."""


def pack_producers(found: Iterable[ProducerInfo]) -> bytes:
    """Pack producers one after another, so that any thread can do so without blocking others."""
    return b"".join(map(msgpack.Packer().pack, found))


def unpack_producers(packed: bytes) -> Iterator[ProducerInfo]:
    """Unpack the result of `pack_producers`."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(packed))
    unpacker.feed(packed)
    for one in unpacker:
        yield taken(ProducerInfo, one)
