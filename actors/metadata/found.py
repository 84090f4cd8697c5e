"""What lies in the brokers' data directories, for metadata that is made anew from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.actors.metadata.followed import Followed
from raylog.actors.ports import TopicId

Position = tuple[int, int]
"""Controller epoch and offset: a place in the metadata. The later one of two is the higher."""
UNKNOWN: Position = (-1, 0)
PRODUCER_ID_MAX = 2**62
"""No cluster has given out as many. A client may write under any id, and few come after this."""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """One partition's directory."""

    topic_id: TopicId
    partition: int
    topic: str | None
    """None where only the beginning of the name is known."""
    settings: Mapping[str, str] | None
    """The topic's own; None if they are not known."""
    log_start_offset: int
    log_end_offset: int
    last_epoch: int
    """The last leader epoch that its log knows; -1 for none."""
    highest_producer_id: int
    """Of those that wrote to it, or that it says of; -1 for none."""
    is_whole: bool
    """Whether it is known to lack nothing: it ends no earlier than it once did, and its broker has
    not begun it anew after a loss."""
    directory: str
    """Its name under `topics/`."""
    partitions: int = 0
    """How many the topic has, as far as was noted; 0 if it was not."""
    settings_at: Position = UNKNOWN
    """Which metadata said settings and partitions."""
    strange_producer_id: int = -1
    """The highest above PRODUCER_ID_MAX, which `highest_producer_id` leaves out; -1 for none."""


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """One broker's data directory."""

    broker_id: int
    cluster_id: str
    directory_id: str
    broker_epoch: int
    metadata_offset: int
    """How far its notes and its copy of the metadata go; 0 if there are none."""
    metadata_epoch: int
    """The highest controller epoch in them."""
    replicas: tuple[FoundReplica, ...]
    followed: Followed = field(default_factory=Followed)
    """What it has noted of the metadata that it followed."""
    voters: tuple[int, ...] = ()
    """The brokers that it knew to hold the metadata."""

    @property
    def followed_to(self) -> Position:
        """How far it has followed the metadata, as noted: a second late at most."""
        return self.followed.epoch, self.followed.offset
