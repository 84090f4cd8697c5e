"""Changes requests that would harm other clients within Kafka's rules.

Brokers must serve requests that delete a topic, change a broker's settings or unregister a broker.
The fuzzer looks for harm that no request should do, so it sends such requests only for its own
topics, or in a form that validates the request and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raylog.wire.api import ApiKey
from tests.fuzz.field_values import GROUP, TOPIC
from tests.fuzz.world import BASE, SCRATCH, Cluster

PARTITIONS_MAX = 8
_UNKNOWN_BROKER = 77
_UPGRADE = 1


def _is_kept(name: str | None) -> bool:
    return name is not None and name.startswith((BASE, "__"))


def _delete_topics(request: Any, cluster: Cluster) -> None:
    kept = {topic.topic_id for topic in cluster.base}
    for topic in request.topics:
        if _is_kept(topic.name):
            topic.name = f"{SCRATCH}0"
        if topic.topic_id in kept:
            topic.topic_id = bytes(16)
    request.topic_names = [name for name in request.topic_names if not _is_kept(name)]


def _create_topics(request: Any, _: Cluster) -> None:
    asked = sum(max(0, topic.num_partitions) + len(topic.assignments) for topic in request.topics)
    if asked > PARTITIONS_MAX or len(request.topics) > PARTITIONS_MAX:
        request.validate_only = True


def _create_partitions(request: Any, _: Cluster) -> None:
    if any(_is_kept(t.name) or t.count > PARTITIONS_MAX for t in request.topics):
        request.validate_only = True


def _delete_records(request: Any, _: Cluster) -> None:
    for topic in request.topics:
        if topic.name.startswith("__"):
            topic.name = f"{SCRATCH}0"


def _alter_configs(request: Any, _: Cluster) -> None:
    for resource in request.resources:
        if resource.resource_type != GROUP and not (
            resource.resource_type == TOPIC and resource.resource_name.startswith(SCRATCH)
        ):
            request.validate_only = True


def _update_features(request: Any, _: Cluster) -> None:
    for update in request.feature_updates:
        update.allow_downgrade = False  # version 0 has this, and cannot only validate
        if update.upgrade_type != _UPGRADE:
            request.validate_only = True


def _unregister_broker(request: Any, cluster: Cluster) -> None:
    if request.broker_id in cluster.broker_ids:
        request.broker_id = _UNKNOWN_BROKER


def _write_markers(request: Any, _: Cluster) -> None:
    # A marker with a huge coordinator epoch fences that producer id's own coordinator for good.
    for marker in request.markers:
        marker.coordinator_epoch = min(marker.coordinator_epoch, 1)
        for topic in marker.topics:
            if topic.name.startswith("__"):
                topic.name = f"{SCRATCH}0"


_RULES: dict[ApiKey, Callable[[Any, Cluster], None]] = {
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.WRITE_TXN_MARKERS: _write_markers,
}


def tame(api_key: ApiKey, request: Any, version: int, cluster: Cluster) -> None:
    """Change what would legally harm others."""
    rule = _RULES.get(api_key)
    if rule is not None:
        rule(request, cluster)
    if api_key is ApiKey.UPDATE_FEATURES and version == 0:
        request.validate_only = False  # no such field; no downgrade was left
