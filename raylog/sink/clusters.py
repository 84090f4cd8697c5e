"""Cached ids of the clusters and topics that a sink's sources read."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import connected
from raylog.sink.batches import UNKNOWN_CLUSTER, KafkaRange
from raylog.wire.errors import KafkaError
from raylog.wire.uuids import ZERO_UUID

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Cluster:
    """What is known about the cluster at one bootstrap."""

    cluster_id: str = UNKNOWN_CLUSTER
    topic_ids: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    is_silent: bool = False
    """Whether lookups fail: they may need credentials that only the source has."""


class Clusters:
    """Looks up ids of sources. If a cluster is unreachable, only topic names are compared."""

    def __init__(self, client: ClientSettings) -> None:
        self._client = client
        self._known: dict[str, _Cluster] = {}

    def identified(self, source: KafkaRange, bootstrap: str) -> KafkaRange:
        """Add the ids of cluster and topics to a source that is read from `bootstrap`."""
        topics = {key.topic for key in source.ends}
        known = self._ask(bootstrap, topics)
        ids = {topic: known.topic_ids[topic] for topic in topics if topic in known.topic_ids}
        return replace(source, cluster_id=known.cluster_id, topic_ids=ids)

    def cluster_id(self, bootstrap: str) -> str:
        """Return a cluster's id; UNKNOWN_CLUSTER if it cannot be looked up."""
        return self._ask(bootstrap, ()).cluster_id

    def partitions_of(self, bootstrap: str, topics: Collection[str]) -> list[TopicPartition]:
        """Return all partitions of topics, uncached; raise UnknownTopicOrPartition."""
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

    def _connected(self, bootstrap: str) -> AbstractContextManager[Core]:
        return connected(replace(self._client, bootstrap=parse_bootstrap(bootstrap)))
