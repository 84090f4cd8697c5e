"""Sets and removes the four settings that throttle moves (KIP-73).

Apache Kafka's kafka-reassign-partitions uses the same ones, so each tool finds the other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from raylog.cli.output import print_done
from raylog.cli.reassignment import throttled_replicas

if TYPE_CHECKING:
    from raylog.cli.reassignment import Plan
    from raylog.client import BlockingClient, PartitionReplicas, Resource, TopicPartition

_SIDES = ("leader", "follower")
RATES = tuple(f"{side}.replication.throttled.rate" for side in _SIDES)
LISTS = tuple(f"{side}.replication.throttled.replicas" for side in _SIDES)


def set_throttles(
    client: BlockingClient,
    plan: Plan,
    current: Mapping[TopicPartition, PartitionReplicas],
    bytes_per_second: int,
    removed_by: str = "--verify removes this once nothing moves",
) -> None:
    """Limit the rate of the plan's moves; other brokers and topics are not changed."""
    from raylog.client import Resource, ResourceType

    adding = {key: one.adding for key, one in client.list_reassignments(list(plan)).items()}
    throttled = throttled_replicas(plan, current, adding)
    rates: dict[str, str | None] = dict.fromkeys(RATES, str(bytes_per_second))
    for broker in throttled.brokers:
        client.alter_configs(Resource(ResourceType.BROKER, str(broker)), rates)
    for topic in sorted(throttled.leading):
        lists: dict[str, str | None] = dict(
            zip(LISTS, (throttled.leading[topic], throttled.following[topic]), strict=True)
        )
        client.alter_configs(Resource(ResourceType.TOPIC, topic), lists)
    if throttled.brokers:
        print_done(
            f"brokers {', '.join(map(str, throttled.brokers))} copy at most {bytes_per_second:,} "
            f"bytes/s for the moves; {removed_by}"
        )


def remove_throttles(client: BlockingClient, topics: Iterable[str]) -> None:
    """Remove the rates from all brokers and the lists from these topics.

    The rates are removed last: an interrupted run leaves one for `throttled_brokers` to find.
    """
    from raylog.client import Resource, ResourceType

    named = [
        topic
        for topic in sorted({*topics})
        if _unset(client, Resource(ResourceType.TOPIC, topic), LISTS)
    ]
    nodes = sorted(client.metadata([]).nodes)
    removed = [
        f"broker {node}"
        for node in nodes
        if _unset(client, Resource(ResourceType.BROKER, str(node)), RATES)
    ]
    removed += named
    if removed:
        print_done(f"throttles removed: {', '.join(removed)}")


def throttled_brokers(client: BlockingClient) -> dict[int, int]:
    """Return the brokers that have a throttle rate: the lower of their two rates, in bytes/s."""
    from raylog.client import ConfigSource, Resource, ResourceType

    found: dict[int, int] = {}
    for node in sorted(client.metadata([]).nodes):
        rates = [
            int(entry.value or 0)
            for entry in client.describe_configs(Resource(ResourceType.BROKER, str(node)))
            if entry.name in RATES and entry.source == ConfigSource.BROKER
        ]
        if rates:
            found[node] = min(rates)
    return found


def _unset(client: BlockingClient, resource: Resource, names: tuple[str, ...]) -> bool:
    """Remove those settings that are set on a resource; return whether there were any."""
    from raylog.client import ConfigSource

    own = (ConfigSource.BROKER, ConfigSource.TOPIC)
    found = [
        entry.name
        for entry in client.describe_configs(resource)
        if entry.name in names and entry.source in own
    ]
    if found:
        client.alter_configs(resource, dict.fromkeys(found))
    return bool(found)
