"""Which clusters a sink's sources are on: ids of clusters and topics, asked once each."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.batches import UNKNOWN_CLUSTER, KafkaRange
from raylog.wire.errors import KafkaError
from raylog.wire.uuids import ZERO_UUID

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Cluster:
    """What one bootstrap has told."""

    cluster_id: str = UNKNOWN_CLUSTER
    topic_ids: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    is_silent: bool = False
    """Whether it cannot be asked: it may want credentials that only the source has."""


class Clusters:
    """Identifies sources. What cannot be asked stays unknown, and is compared by names alone."""

    def __init__(self, client: ClientSettings) -> None:
        self._client = client
        self._known: dict[str, _Cluster] = {}

    def identified(self, source: KafkaRange, bootstrap: str) -> KafkaRange:
        """A source that is read from `bootstrap`, with the ids of its cluster and topics."""
        topics = {key.topic for key in source.ends}
        known = self._ask(bootstrap, topics)
        ids = {topic: known.topic_ids[topic] for topic in topics if topic in known.topic_ids}
        return replace(source, cluster_id=known.cluster_id, topic_ids=ids)

    def cluster_id(self, bootstrap: str) -> str:
        """The id of a cluster; UNKNOWN_CLUSTER if it cannot be asked."""
        return self._ask(bootstrap, ()).cluster_id

    def partitions_of(self, bootstrap: str, topics: Collection[str]) -> list[TopicPartition]:
        """All partitions of topics, asked anew; raises UnknownTopicOrPartition."""
        with self._connected(bootstrap) as core:
            return run_blocking(core.partitions_of(topics))

    def _ask(self, bootstrap: str, topics: Collection[str]) -> _Cluster:
        known = self._known.setdefault(bootstrap, _Cluster())
        new = set(topics) - known.asked
        if known.is_silent or (known.cluster_id != UNKNOWN_CLUSTER and not new):
            return known
        try:
            with self._connected(bootstrap) as core:
                run_blocking(core.repeat(lambda: core.refresh(new)))
                view = core.cluster
        except (KafkaError, ClientError) as failure:
            known.is_silent = True
            log.warning("the cluster at %s does not tell its id: %s", bootstrap, failure)
            return known
        known.cluster_id = view.cluster_id or UNKNOWN_CLUSTER
        known.is_silent = known.cluster_id == UNKNOWN_CLUSTER
        known.asked |= new
        known.topic_ids |= {
            topic.name: topic.topic_id.hex()
            for topic in view.topics.values()
            if topic.topic_id != ZERO_UUID
        }
        return known

    @contextmanager
    def _connected(self, bootstrap: str) -> Iterator[Core]:
        io = BlockingIo()
        core = Core(io, replace(self._client, bootstrap=parse_bootstrap(bootstrap)))
        try:
            yield core
        finally:
            core.close()
            io.close()
