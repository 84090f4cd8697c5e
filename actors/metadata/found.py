"""The contents of brokers' data directories, as the input of a metadata rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.followed import Followed

Position = tuple[int, int]
"""Controller epoch and offset of a place in the metadata; the higher one is the later."""
UNKNOWN: Position = (-1, 0)
PRODUCER_ID_MAX = 2**62
"""No cluster has allocated this many. A client may use any id, but few exceed this."""


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """One partition's directory."""

    topic_id: TopicId
    partition: int
    topic: str | None
    """The topic's name; None if only its beginning is known."""
    settings: Mapping[str, str] | None
    """The topic's own settings; None if unknown."""
    log_start_offset: int
    log_end_offset: int
    last_epoch: int
    """The last leader epoch in its log; -1 if none."""
    highest_producer_id: int
    """The highest producer id that wrote to it or that its records name; -1 if none."""
    is_whole: bool
    """Whether it is known to be complete: it does not end before its former end, and its broker has
    not created it again after a loss."""
    directory: str
    """Its name under `topics/`."""
    partitions: int = 0
    """Number of partitions of the topic, as last recorded; 0 if it was not recorded."""
    settings_at: Position = UNKNOWN
    """The place in the metadata from which `settings` and `partitions` were recorded."""
    strange_producer_id: int = -1
    """The highest id above PRODUCER_ID_MAX, which `highest_producer_id` excludes; -1 if none."""


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """One broker's data directory."""

    broker_id: int
    cluster_id: str
    directory_id: str
    broker_epoch: int
    metadata_offset: int
    """The end of its records and its copy of the metadata; 0 if it has neither."""
    metadata_epoch: int
    """The highest controller epoch in them."""
    replicas: tuple[FoundReplica, ...]
    followed: Followed = field(default_factory=Followed)
    """The metadata that it has followed, as recorded."""
    voters: tuple[int, ...] = ()
    """The brokers that it knew as voters."""

    @property
    def followed_to(self) -> Position:
        """How far it has followed the metadata; recorded with a delay of at most a second."""
        return self.followed.epoch, self.followed.offset
