"""Asks the brokers for the input of a plan of moves: replicas, sizes, racks, current moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.cli.failures import CommandFailed, last_line

if TYPE_CHECKING:
    from raylog.client import (
        BlockingClient,
        LogDir,
        PartitionReplicas,
        Reassignment,
        TopicPartition,
    )
    from raylog.client.admin.topics import BrokerView


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The state of a cluster as its brokers report it."""

    brokers: list[BrokerView]
    """All registered brokers, sorted by id."""
    partitions: dict[TopicPartition, PartitionReplicas]
    """Partitions as they will be after their current moves."""
    moving: dict[TopicPartition, Reassignment]
    sizes: dict[TopicPartition, int]
    """Bytes of each partition's largest replica: others may still be catching up."""

    @property
    def racks(self) -> dict[int, str | None]:
        """Racks of all registered brokers, by id."""
        return {one.broker_id: one.rack for one in self.brokers}

    @property
    def live(self) -> list[int]:
        """Ids of the brokers that are not fenced."""
        return [one.broker_id for one in self.brokers if not one.is_fenced]

    @property
    def emptied(self) -> set[int]:
        """Brokers that current moves only take replicas from, because they are being drained."""
        losing = {broker for move in self.moving.values() for broker in move.removing}
        return losing - {broker for move in self.moving.values() for broker in move.adding}


def survey(client: BlockingClient) -> Surveyed:
    """Ask the live brokers.

    Raises CommandFailed if a broker does not report its sizes, or if one of its disks has failed.
    """
    from raylog.cli.reassignment import arrived

    brokers = sorted(client.describe_cluster().brokers, key=lambda one: one.broker_id)
    moving = client.list_reassignments()
    partitions = arrived(client.describe_partitions(), moving)
    found = _directories(client, [one.broker_id for one in brokers if not one.is_fenced])
    sizes: dict[TopicPartition, int] = {}
    for key, size in _sizes(found):
        sizes[key] = max(size, sizes.get(key, 0))
    return Surveyed(brokers, partitions, moving, sizes)


def _directories(client: BlockingClient, brokers: Collection[int]) -> list[LogDir]:
    from raylog.client import ClientError
    from raylog.wire.errors import KafkaError

    found: list[LogDir] = []
    for broker in brokers:
        try:
            found += client.describe_log_dirs([broker])
        except (ClientError, KafkaError) as failure:
            raise CommandFailed(
                f"broker {broker} does not report the sizes of its replicas, so no plan can be "
                f"made: {last_line(failure)}",
                "List the brokers with: raylog brokers list",
            ) from failure
    for one in found:
        if one.failure is not None:
            raise CommandFailed(
                f"a disk of broker {one.broker_id} has failed ({one.path}), so the sizes of its "
                "replicas are not known",
                "Repair or replace it first; see docs/operations.md, Adding, replacing and "
                "removing a broker",
            )
    return found


def _sizes(directories: Iterable[LogDir]) -> Iterable[tuple[TopicPartition, int]]:
    from raylog.client import TopicPartition

    for directory in directories:
        for one in directory.partitions:
            yield TopicPartition(one.topic, one.partition), one.size_bytes
