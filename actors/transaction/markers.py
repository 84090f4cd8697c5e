"""Shell: the way of markers to the leaders of a transaction's partitions.

What one turn of the event loop brings for one leading process goes there in one frame. A partition
is tried again, a little later each time, until it has its marker, for as long as the coordinator
leads. One that is deleted counts as done. Offsets of a group are completed by its coordinator,
which writes the marker to `__consumer_offsets` itself.

A marker whose answer never came may still be on its way, and might end the producer's next
transaction if that has the same epoch. So it is repeated under a higher coordinator epoch only:
with that, leaders refuse what comes late.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from raylog.actors.coordination.failpoints import Failpoints
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import GROUP, OFFSETS_TOPIC, broker_name
from raylog.actors.ports import PartitionKey, TopicId
from raylog.actors.runtime.base import (
    ActorGone,
    Link,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.transaction.api import (
    COMPLETE_TRANSACTION,
    WRITE_MARKERS,
    MarkedPartition,
    Marker,
)
from raylog.actors.transaction.step import SendMarkers
from raylog.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)
BACKOFF_MS = (20, 1_000)
"""First and longest wait before a partition is tried again."""
LOCATE_TIMEOUT_MS = 2_000
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
"""There is nothing left to be done.

A newer epoch of the producer shows that this one has ended; and no client may write to a topic that
only its coordinators write to, though it may add it to a transaction.
"""


class Owner(Protocol):
    """The shard whose transactions end."""

    coordinator_epoch: int

    def marker_written(self, markers: SendMarkers, topic: str, partition: int) -> None:
        """A partition has its marker; others may still be without."""

    def markers_written(self, markers: SendMarkers) -> None:
        """Every partition has its marker."""

    def markers_uncertain(self, epoch: int) -> None:
        """Markers under this epoch may still be on their way: a higher one is needed."""


@dataclass(eq=False, slots=True)
class _Sending:
    """One transaction that ends."""

    owner: Owner
    markers: SendMarkers
    left: set[tuple[str, int]]
    dropped: bool = False


@dataclass(eq=False, slots=True)
class _Piece:
    """One of its partitions."""

    sending: _Sending
    topic: str
    index: int
    topic_id: TopicId = _NO_TOPIC
    leader: int = -1
    leader_epoch: int = -1
    """Where it was sent last."""
    above_epoch: int = -1
    """A marker under this coordinator epoch may be on its way: only higher ones are sent."""
    failures: int = 0
    tries: int = 0

    @property
    def place(self) -> tuple[str, TopicId, int]:
        """What its leader's address is remembered by."""
        return self.kind, self.topic_id, self.index

    @property
    def kind(self) -> str:
        """The request that carries it."""
        return COMPLETE_TRANSACTION if self.topic == OFFSETS_TOPIC else WRITE_MARKERS


@dataclass(eq=False, slots=True)
class _Frame:
    """One request: for each transaction its partitions there, as of which try."""

    markers: list[Marker] = field(default_factory=list)
    pieces: list[list[tuple[_Piece, int]]] = field(default_factory=list)


class MarkerSender:
    """All markers of one coordinator process."""

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
        """Leader, its epoch and its process' address, by what is asked for."""
        self._links: dict[str, Link] = {}
        self._connecting: dict[str, list[_Piece]] = {}
        """What waits for a link."""

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
        """Leave an owner's markers to whoever coordinates its transactions from now on."""
        for sending in self._sendings.pop(owner, ()):
            sending.dropped = True

    def metadata_changed(self) -> None:
        """Do not wait for leaders that are leaders no more: they may hang."""
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
        for link in tuple(self._links.values()):
            link.close()

    # ---- frames --------------------------------------------------------------------------

    def _add(self, pieces: Iterable[_Piece]) -> None:
        self._due.extend(pieces)
        if not self._flush_is_due:
            self._flush_is_due = True
            self._runtime.call_later(0, self._flush)

    def _flush(self) -> None:
        """Send what is due and whose leader is known; look for the leaders of the rest."""
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
        """Find a piece's leader in the metadata; False if there is nothing to be sent now."""
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
        """Ask a leader's broker which of its processes lead."""
        broker = broker_name(self._cluster_id, leader)
        for kind in (WRITE_MARKERS, COMPLETE_TRANSACTION):
            wanted = [piece for piece in pieces if piece.kind == kind]
            if not wanted:
                continue
            try:
                addresses = await self._ask(broker, kind, wanted)
            except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
                log.info("broker %d does not say what it leads: %s", leader, failure)
                addresses = [""] * len(wanted)
            for piece, address in zip(wanted, addresses, strict=True):
                if address:
                    self._addresses[piece.place] = (piece.leader, piece.leader_epoch, address)
                    self._add((piece,))
                else:
                    self._again(piece)

    async def _ask(self, broker: str, kind: str, wanted: list[_Piece]) -> list[str]:
        if kind == COMPLETE_TRANSACTION:
            address: str = await self._runtime.call(
                broker, "coordinator_address", GROUP, timeout_ms=LOCATE_TIMEOUT_MS
            )
            return [address] * len(wanted)
        keys: list[PartitionKey] = [(piece.topic_id, piece.index) for piece in wanted]
        addresses: list[str] = await self._runtime.call(
            broker, "locate_leaders", keys, timeout_ms=LOCATE_TIMEOUT_MS
        )
        return addresses

    def _send(self, address: str, kind: str, pieces: list[_Piece]) -> None:
        link = self._links.get(address)
        if link is not None and link.is_open:
            self._request(link, kind, pieces)
        elif address in self._connecting:
            self._connecting[address].extend(pieces)
        else:
            self._connecting[address] = pieces
            self._runtime.start(self._connect(address, kind), f"send markers to {address}")

    async def _connect(self, address: str, kind: str) -> None:
        """Open a link; who answers one kind of request at an address answers no other."""
        try:
            link = await self._runtime.connect(address)
        except PeerLost as lost:
            log.info("no link to %s: %s", address, lost)
            for piece in self._connecting.pop(address):
                self._again(piece)
            return
        self._links[address] = link
        link.on_lost(lambda: self._forget(address, link))
        pieces = self._connecting.pop(address)
        self._request(link, kind, [piece for piece in pieces if not piece.sending.dropped])

    def _forget(self, address: str, link: Link) -> None:
        if self._links.get(address) is link:
            del self._links[address]

    def _request(self, link: Link, kind: str, pieces: list[_Piece]) -> None:
        """Send one frame; pieces of one transaction share a marker."""
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
        """Whether an outcome is that of the last try, of a transaction that is still ours."""
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
        """A marker may still come to its partition, or is fenced there: go on under a new epoch."""
        self._unanswered.discard(piece)
        if piece.sending.dropped:
            return
        owner = piece.sending.owner
        piece.above_epoch = owner.coordinator_epoch
        owner.markers_uncertain(owner.coordinator_epoch)
        self._again(piece)

    def _again(self, piece: _Piece) -> None:
        """Try again a little later, wherever its leader is then."""
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
