"""Sends markers to the leaders of a transaction's partitions.

All markers for one process in the same turn of the event loop share a frame. A partition is retried
with increasing delays until it has its marker, as long as the coordinator leads. A deleted
partition counts as done. The offsets of a group are completed by the group coordinator, which
writes the marker to `__consumer_offsets` itself.

If the response is lost, the marker may still arrive later, and could then end the producer's next
transaction if that has the same epoch. So a marker is repeated only under a higher coordinator
epoch, which makes leaders refuse the late one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.coordination.rules.failpoints import Failpoints
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import GROUP, OFFSETS_TOPIC, broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import (
    ActorGone,
    Link,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.runtime.link_table import Links
from raylog.actors.transaction.messages import (
    COMPLETE_TRANSACTION,
    WRITE_MARKERS,
    MarkedPartition,
    Marker,
)
from raylog.actors.transaction.rules.step import SendMarkers
from raylog.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)
BACKOFF_MS = (20, 1_000)
"""Shortest and longest delay before a partition is retried."""
LOCATE_TIMEOUT_MS = 2_000
ADDRESSES_MAX = 100_000
"""Known addresses of partitions' leaders, deleted topics' included. Beyond it the oldest is
forgotten."""
_NO_TOPIC = TopicId(b"")
_SETTLED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Results after which nothing is left to do.

A newer epoch of the producer shows that this transaction has ended. A topic that only coordinators
may write to can be added to a transaction, but clients cannot write to it.
"""


class Owner(Protocol):
    """The shard whose transactions are ending."""

    coordinator_epoch: int

    def marker_written(self, markers: SendMarkers, topic: str, partition: int) -> None:
        """Called when a partition has its marker; others may still lack theirs."""

    def markers_written(self, markers: SendMarkers) -> None:
        """Called when every partition has its marker."""

    def markers_uncertain(self, epoch: int) -> None:
        """Called when markers with this epoch may still arrive: a higher epoch is needed."""


@dataclass(eq=False, slots=True)
class _Sending:
    """One transaction that is ending."""

    owner: Owner
    markers: SendMarkers
    left: set[tuple[str, int]]
    dropped: bool = False


@dataclass(eq=False, slots=True)
class _Piece:
    """One partition of a transaction that is ending."""

    sending: _Sending
    topic: str
    index: int
    topic_id: TopicId = _NO_TOPIC
    leader: int = -1
    leader_epoch: int = -1
    """The epoch at the last attempt."""
    above_epoch: int = -1
    """A marker with this coordinator epoch may still arrive, so only higher epochs are sent."""
    failures: int = 0
    tries: int = 0

    @property
    def place(self) -> tuple[str, TopicId, int]:
        """The key of its leader's address."""
        return self.kind, self.topic_id, self.index

    @property
    def kind(self) -> str:
        """The request that carries its marker."""
        return COMPLETE_TRANSACTION if self.topic == OFFSETS_TOPIC else WRITE_MARKERS


@dataclass(eq=False, slots=True)
class _Frame:
    """One request: the partitions of each transaction, with the number of each attempt."""

    markers: list[Marker] = field(default_factory=list)
    pieces: list[list[tuple[_Piece, int]]] = field(default_factory=list)


class MarkerSender:
    """Sends all markers of one coordinator process."""

    def __init__(
        self, runtime: Runtime, cluster_id: str, image: MetadataImage, failpoints: Failpoints
    ) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._image = image
        self._failpoints = failpoints
        self._sendings: dict[Owner, set[_Sending]] = {}
        self._due: list[_Piece] = []
        self._flush_is_due = False
        self._unanswered: set[_Piece] = set()
        self._addresses: dict[tuple[str, TopicId, int], tuple[int, int, str]] = {}
        """Leader, its epoch and its process's address, by `_Piece.place`."""
        self._links = Links(runtime)

    # ---- what shards want ----------------------------------------------------------------

    def send(self, owner: Owner, markers: SendMarkers) -> None:
        """Write markers; `owner.markers_written` follows when every partition has one."""
        left = {(topic, index) for topic, found in markers.partitions.items() for index in found}
        if not left:
            owner.markers_written(markers)
            return
        sending = _Sending(owner, markers, left)
        self._sendings.setdefault(owner, set()).add(sending)
        self._add(_Piece(sending, topic, index) for topic, index in sorted(left))

    def drop(self, owner: Owner) -> None:
        """Leave an owner's markers to the next coordinator of its transactions."""
        for sending in self._sendings.pop(owner, ()):
            sending.dropped = True

    def metadata_changed(self) -> None:
        """Stop waiting for former leaders, which may be hanging."""
        for piece in tuple(self._unanswered):
            topic = self._image.topic(piece.topic)
            state = None
            if (
                topic is not None
                and topic.topic_id == piece.topic_id
                and piece.index < len(topic.partitions)
            ):
                state = topic.partitions[piece.index]
            if state is None or state.leader_epoch != piece.leader_epoch:
                self._uncertain(piece)

    def close(self) -> None:
        """Close all links."""
        self._links.close()

    # ---- frames --------------------------------------------------------------------------

    def _add(self, pieces: Iterable[_Piece]) -> None:
        self._due.extend(pieces)
        if not self._flush_is_due:
            self._flush_is_due = True
            self._runtime.call_later(0, self._flush)

    def _flush(self) -> None:
        """Send markers whose leader is known; look up the leaders of the others."""
        self._flush_is_due = False
        due, self._due = self._due, []
        ready: dict[tuple[str, str], list[_Piece]] = {}
        unknown: dict[int, list[_Piece]] = {}
        for piece in due:
            if piece.sending.dropped or not self._place(piece):
                continue
            leader, epoch, address = self._addresses.get(piece.place, (-1, -1, ""))
            if (leader, epoch) == (piece.leader, piece.leader_epoch):
                ready.setdefault((address, piece.kind), []).append(piece)
            else:
                unknown.setdefault(piece.leader, []).append(piece)
        for (address, kind), pieces in ready.items():
            self._send(address, kind, pieces)
        for leader, pieces in unknown.items():
            self._runtime.start(self._locate(leader, pieces), f"leaders at broker {leader}")

    def _place(self, piece: _Piece) -> bool:
        """Find a partition's leader in the metadata; return False if nothing can be sent now."""
        topic = self._image.topic(piece.topic)
        if topic is None or piece.index >= len(topic.partitions):
            self._settled(piece)
            return False
        state = topic.partitions[piece.index]
        piece.topic_id = topic.topic_id
        piece.leader, piece.leader_epoch = state.leader, state.leader_epoch
        if state.leader < 0 or piece.sending.owner.coordinator_epoch <= piece.above_epoch:
            self._again(piece)
            return False
        return True

    async def _locate(self, leader: int, pieces: list[_Piece]) -> None:
        """Ask a leader's broker which of its processes lead the partitions."""
        broker = broker_name(self._cluster_id, leader)
        for kind in (WRITE_MARKERS, COMPLETE_TRANSACTION):
            wanted = [piece for piece in pieces if piece.kind == kind]
            if not wanted:
                continue
            try:
                addresses = await self._ask(broker, kind, wanted)
            except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
                log.info("broker %d does not answer which processes lead: %s", leader, failure)
                addresses = [""] * len(wanted)
            for piece, address in zip(wanted, addresses, strict=True):
                if address:
                    if len(self._addresses) >= ADDRESSES_MAX:  # some are of deleted topics
                        del self._addresses[next(iter(self._addresses))]
                    self._addresses[piece.place] = (piece.leader, piece.leader_epoch, address)
                    self._add((piece,))
                else:
                    self._again(piece)

    async def _ask(self, broker: str, kind: str, wanted: list[_Piece]) -> list[str]:
        if kind == COMPLETE_TRANSACTION:
            address = await call(
                self._runtime,
                broker,
                Broker.coordinator_address,
                GROUP,
                timeout_ms=LOCATE_TIMEOUT_MS,
            )
            return [address] * len(wanted)
        keys: list[PartitionKey] = [(piece.topic_id, piece.index) for piece in wanted]
        return await call(
            self._runtime, broker, Broker.locate_leaders, keys, timeout_ms=LOCATE_TIMEOUT_MS
        )

    def _send(self, address: str, kind: str, pieces: list[_Piece]) -> None:
        self._links.use(
            address, partial(self._request, kind, pieces), partial(self._unreached, address, pieces)
        )

    def _unreached(self, address: str, pieces: list[_Piece], lost: PeerLost) -> None:
        log.info("no link to %s: %s", address, lost)
        for piece in pieces:
            self._again(piece)

    def _request(self, kind: str, pieces: list[_Piece], link: Link) -> None:
        """Send one frame; partitions of one transaction share a marker."""
        pieces = [piece for piece in pieces if not piece.sending.dropped]
        by_sending: dict[_Sending, list[_Piece]] = {}
        for piece in pieces:
            by_sending.setdefault(piece.sending, []).append(piece)
            piece.tries += 1
        frame = _Frame()
        for sending, found in by_sending.items():
            markers = sending.markers
            frame.pieces.append([(piece, piece.tries) for piece in found])
            frame.markers.append(
                Marker(
                    markers.producer_id,
                    markers.producer_epoch,
                    sending.owner.coordinator_epoch,
                    markers.committed,
                    markers.transaction_version,
                    [MarkedPartition(one.topic_id, one.index, one.leader_epoch) for one in found],
                )
            )
        if not frame.markers:
            return
        self._failpoints.reach("markers.sending")
        self._unanswered.update(pieces)
        link.request(
            kind,
            frame.markers,
            (),
            lambda codes, _payload: self._answered(frame, codes),
            partial(self._lost, frame),
        )
        self._failpoints.reach("markers.sent")

    # ---- outcomes ------------------------------------------------------------------------

    def _answered(self, frame: _Frame, codes: list[list[int]]) -> None:
        self._failpoints.reach("markers.answered")
        for pieces, found in zip(frame.pieces, codes, strict=True):
            for (piece, tried), code in zip(pieces, found, strict=True):
                if self._is_current(piece, tried):
                    self._outcome(piece, ErrorCode(code))

    def _lost(self, frame: _Frame, failure: Exception) -> None:
        log.info("markers got no answer: %s", failure)
        for pieces in frame.pieces:
            for piece, tried in pieces:
                if self._is_current(piece, tried):
                    self._uncertain(piece)

    def _is_current(self, piece: _Piece, tried: int) -> bool:
        """Whether an outcome belongs to the last attempt, for a transaction that is still ours."""
        return piece.tries == tried and piece in self._unanswered

    def _outcome(self, piece: _Piece, code: ErrorCode) -> None:
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            log.warning("%s-%d has a marker of a later coordinator", piece.topic, piece.index)
            self._uncertain(piece)
        elif code in _SETTLED:
            if code is not ErrorCode.NONE:
                log.warning("%s-%d takes no marker: %s", piece.topic, piece.index, code.name)
            self._unanswered.discard(piece)
            self._settled(piece)
        else:
            log.info("%s-%d has no marker yet: %s", piece.topic, piece.index, code.name)
            self._unanswered.discard(piece)
            self._again(piece)

    def _uncertain(self, piece: _Piece) -> None:
        """Retry under a new epoch, because a marker may still arrive or was fenced."""
        self._unanswered.discard(piece)
        if piece.sending.dropped:
            return
        owner = piece.sending.owner
        piece.above_epoch = owner.coordinator_epoch
        owner.markers_uncertain(owner.coordinator_epoch)
        self._again(piece)

    def _again(self, piece: _Piece) -> None:
        """Retry after a delay, at whichever broker leads then."""
        self._addresses.pop(piece.place, None)
        first_ms, longest_ms = BACKOFF_MS
        delay_ms = min(first_ms << min(piece.failures, 16), longest_ms)
        piece.failures += 1
        self._runtime.call_later(delay_ms, lambda: self._add((piece,)))

    def _settled(self, piece: _Piece) -> None:
        sending = piece.sending
        if sending.dropped:
            return
        sending.left.discard((piece.topic, piece.index))
        sending.owner.marker_written(sending.markers, piece.topic, piece.index)
        if not sending.left:
            self._failpoints.reach("markers.written")
            self._sendings[sending.owner].discard(sending)
            sending.owner.markers_written(sending.markers)
