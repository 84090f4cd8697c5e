"""A broker that partitions are fetched from, and its requests. Fetch v4-18."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.client.cluster import TopicPartition
from raylog.client.connection import Pending
from raylog.client.consumer.session import Asked, FetchSession, SessionRequest, forgotten
from raylog.client.consumer.settings import ConsumerSettings
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from raylog.wire.uuids import ZERO_UUID


@dataclass(slots=True, eq=False)
class Source:
    """A broker that partitions are fetched from."""

    node_id: int
    session: FetchSession = field(default_factory=FetchSession)
    pending: Pending[FetchResponse] | None = None
    max_bytes: int = 0
    """The limit of the fetch in flight."""
    by_name: bool = False
    """Whether the session has a topic without an id."""
    full: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions with enough buffered; nothing is fetched until some of it is handed out."""

    @property
    def is_done(self) -> bool:
        """Whether a response or a failure has arrived."""
        return self.pending is not None and self.pending.done

    def drop(self, key: TopicPartition) -> None:
        """Stop fetching a partition from this broker."""
        self.session.drop(key)
        self.full.pop(key, None)

    def request(
        self,
        settings: ConsumerSettings,
        part: SessionRequest,
        asked: Mapping[TopicPartition, Asked],
    ) -> FetchRequest:
        """Build the next fetch; `asked` has the state of each listed partition."""
        self.session.tell(asked.values())
        if part.epoch <= 0:
            self.by_name = False
        self.by_name |= any(one.topic_id == ZERO_UUID for one in asked.values())
        grouped: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for key in part.partitions:
            one = asked[key]
            grouped.setdefault((key.topic, one.topic_id), []).append(
                FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=one.leader_epoch,
                    fetch_offset=one.offset,
                    partition_max_bytes=settings.partition_max_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(settings.read_committed),
            session_id=part.session_id,
            session_epoch=part.epoch,
            topics=[
                FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in grouped.items()
            ],
            forgotten_topics_data=forgotten(part.forgotten),
            rack_id=settings.client_rack,
        )
