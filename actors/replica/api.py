"""Link requests that a Replica answers, and their shapes.

Every header is a msgpack list, and grows at its end (`actors.plain`); a partition is named by its
topic id and index.

| kind           | header                                          | answer's header          |
|----------------|-------------------------------------------------|--------------------------|
| produce        | acks, timeout in ms, list of ProducePart; the   | of each part a Produce-  |
|                | payload is their batches, one behind the other  | Answer, or error code    |
|                |                                                 | and message              |
| produce_in_-   | as of produce, and a TransactionalWrite         | as of produce            |
| transaction    |                                                 |                          |
| write_markers  | list of Marker (actors/transaction/api.py)      | of each Marker the error |
|                |                                                 | codes of its partitions  |
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

Acks are Kafka's, and UNTIL_COMMITTED for coordinators: as all, but a batch that is written waits
for the high watermark for as long as its leader leads, whatever the timeout and whoever leaves the
in-sync replicas meanwhile. So an answer always says whether the batch counts, except
NOT_LEADER_OR_FOLLOWER, which leaves that open.

A coordinator claims its partition before it reads it. Batches that come later over a link with an
older claim are refused: a coordinator that is gone must not write behind its successor's back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from raylog.actors.plain import message, taken
from raylog.actors.ports import TopicId
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
    """-1: not known."""
    length: int
    """Bytes of its batch."""
    refused_sequence: int = NO_SEQUENCE
    """First sequence that the sender knows to have been refused of the same producer and epoch."""


@message
class TransactionalWrite(NamedTuple):
    """Whose transaction the transactional batches of one request belong to (KIP-98, KIP-890)."""

    transactional_id: str
    adds: bool
    """Version 2: leaders add their partitions to the transaction; else they may verify them."""
    knows_abortable: bool
    """Whether the client understands TRANSACTION_ABORTABLE."""


@message
class ProduceAnswer(NamedTuple):
    """Where a batch went."""

    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps the time of the append."""
    log_start_offset: int


def produced(outcome: Sequence[Any]) -> ProduceAnswer:
    """What became of one part of a produce request; raises the KafkaError that it was refused with.

    Takes what the link's answer holds for the part.
    """
    if len(outcome) == len(ProduceAnswer._fields):
        return ProduceAnswer._make(outcome)
    if not isinstance(outcome[1], str):
        return taken(ProduceAnswer, outcome)
    code, message, *_ = outcome
    raise error_of(code, message)


@message
class Interest(NamedTuple):
    """One partition a fetcher wants, from `offset` on."""

    topic_id: TopicId
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int
    """-1: not known."""
    last_fetched_epoch: int
    """-1: not known; else checked against the log (KIP-595's diverging epoch)."""
    any_replica: bool = False
    """Whether a follower may answer too (KIP-392)."""


@message
class FetchAsk(NamedTuple):
    """What a gateway asks for one fetch.

    A session remembers its interests between requests, so that a request costs what has changed
    and not what is watched. A newer ask of the same session answers an older one that still waits.
    """

    session_id: int
    once: bool
    """Whether the session ends with this answer."""
    complete: bool
    """Whether every partition with news is to be named, even those the bytes do not reach."""
    isolation_level: int
    max_bytes: int
    min_bytes: int
    wait: bool
    """Whether to wait until `min_bytes` are there; the gateway ends the wait by `fetch_end`."""
    changes: list[Any]
    """Interests that are new or changed."""
    forgotten: list[Any]
    """(topic id, partition) pairs no longer wanted."""


@message
class FetchedPartition(NamedTuple):
    """What is known of one partition of a fetch: figures, and a slice of a segment file."""

    topic_id: TopicId
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    segment_id: str = ""
    position: int = 0
    length: int = 0
    """0: no records now."""
    aborted: list[Any] | None = None
    """(producer id, first offset) of aborted transactions in the slice, for read_committed."""
    diverging: list[int] | None = None
    """(epoch, end offset) where the fetcher's history leaves the leader's."""


@message
class ReplicateAsk(NamedTuple):
    """What a follower's process asks of one that leads, for all partitions it follows there.

    A session for each link remembers what was asked. A newer request answers an older one that
    still waits. A partition that was answered with records, an error or an end of history says
    nothing more until the follower names it again; one that is named with figures only goes on.
    """

    broker_id: int
    """The follower's."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    changes: list[Any]
    """ReplicaInterests that are new or changed."""
    forgotten: list[Any]
    """(topic id, partition) pairs no longer followed there."""


@message
class ReplicaInterest(NamedTuple):
    """One partition a follower wants, from its log end on: what is below it, it holds."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    """Epoch of its last record; -1: it has none, or knows none."""
    log_start_offset: int
    incarnation: str
    """The opening of its log that asks (KIP-903)."""
    max_bytes: int


@message
class ReplicatedPart(NamedTuple):
    """What a follower is told of one partition."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    """In which the follower asked: it passes over an answer of an epoch that is over."""
    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: list[int] | None = None
    """(epoch, end offset) where the follower's history leaves the leader's (KIP-595)."""
    length: int = 0
    """Bytes of the payload that are its batches."""
    claims_end: int = 0
    """Below it timestamps may be claims that the leader has not corrected yet; exclusive."""


def pack_producers(found: Iterable[ProducerInfo]) -> bytes:
    """Producers one behind the other: of many, any thread may pack and unpack one after another."""
    return b"".join(map(msgpack.Packer().pack, found))


def unpack_producers(packed: bytes) -> Iterator[ProducerInfo]:
    """What `pack_producers` has packed."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(packed))
    unpacker.feed(packed)
    for one in unpacker:
        yield taken(ProducerInfo, one)
