"""Finds out what a cluster's brokers are, and whether they would accept a scenario's topics."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from raylog.client import Admin, ClientError, Features, Resource, ResourceType
from raylog.loadtest import topics
from raylog.loadtest.local import Local
from raylog.loadtest.results import Target
from raylog.wire.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
)

_OURS = "gateway.actors"
"""A setting that only Raylog's brokers have."""
_RELEASES = {
    1: "3.0",
    2: "3.1",
    3: "3.2",
    4: "3.3",
    8: "3.4",
    9: "3.5",
    12: "3.6",
    15: "3.7",
    20: "3.8",
    21: "3.9",
    22: "4.0",
    26: "4.1",
    28: "4.2",
    30: "4.3",
    31: "4.4",
}
"""Apache Kafka's releases by the first metadata.version of each. A broker does not support those of
later releases."""
UNKNOWN = "Kafka-compatible"
_MISTAKES = (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    PolicyViolation,
)
"""Errors of CreateTopics that the scenario causes. Too many partitions are a PolicyViolation."""


class TopicsRefused(ValueError):
    """The brokers would not create a scenario's topics. The message gives the reason."""


def target_of(admin: Admin, bootstrap: str, known: str = "") -> Target:
    """The cluster under load. `known` is its kind, if that is known already."""
    brokers = [one for one in admin.describe_cluster().brokers if not one.is_fenced]
    kind = known or _kind(admin, brokers[0].broker_id)
    return Target(bootstrap=bootstrap, kind=kind, brokers=len(brokers))


def checked_target(settings: Mapping[str, object], local: Local, known: str = "") -> Target:
    """Ask the brokers of a run what they are, and whether they would create its topics.

    Nothing is created. Raises TopicsRefused, ClientError and KafkaError.
    """
    with Admin({**settings, "bootstrap.servers": local.bootstrap}) as admin:
        target = target_of(admin, local.bootstrap, known)
        try:
            topics.make(admin, local, target.brokers, validate_only=True)
        except _MISTAKES as refused:
            raise TopicsRefused(f"{local.scenario.name} at {local.bootstrap}: {refused}") from None
    return target


def _kind(admin: Admin, broker_id: int) -> str:
    """The kind of the brokers, guessed from settings and features. No API tells it."""
    broker = Resource(ResourceType.BROKER, str(broker_id))
    try:
        if _OURS in {one.name for one in admin.describe_configs(broker)}:
            return "Raylog"
        return kafka_of(admin.describe_features())
    except (KafkaError, ClientError):
        return UNKNOWN


def kafka_of(features: Features) -> str:
    """The Apache Kafka release with these features, or UNKNOWN."""
    _, level = features.supported.get("metadata.version", (0, 0))
    firsts = list(_RELEASES)
    place = bisect_right(firsts, level) - 1
    if place < 0:
        return UNKNOWN
    is_newer = place == len(firsts) - 1 and level > firsts[-1]
    return f"Apache Kafka {_RELEASES[firsts[place]]}{' or newer' if is_newer else ''}"
