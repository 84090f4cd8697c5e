"""Chooses the replicas of new partitions.

The brokers form a ring with a random start. Partition i starts at position i of the ring. It first
takes brokers in racks that it has not used yet, then the ones that follow. In a cluster without
racks, its replica j is on broker (i + j) mod n. Fenced brokers are used only if there are too few
live ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

from raylog.actors.metadata.image import BrokerRegistration
from raylog.wire.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from raylog.wire.uuids import Chance


@dataclass(frozen=True, slots=True)
class Ring:
    """The brokers, in the order in which partitions take them."""

    live: tuple[BrokerRegistration, ...]
    fenced: tuple[BrokerRegistration, ...]
    start: int

    def assignments(self, partitions: range, count: int) -> list[tuple[int, ...]]:
        """Return the brokers of each of these partitions.

        They repeat after one round of the ring.
        """
        fenced = len(self.fenced) if count > len(self.live) else 1
        known: dict[tuple[int, int], tuple[int, ...]] = {}
        found = []
        for partition in partitions:
            place = self.start + partition
            turn = place % len(self.live), place % fenced
            replicas = known.get(turn)
            if replicas is None:
                replicas = known[turn] = self.replicas(partition, count)
            found.append(replicas)
        return found

    def replicas(self, partition: int, count: int) -> tuple[int, ...]:
        """Return the brokers of one partition, the preferred leader first."""
        return (
            *_taken(self.live, self.start + partition, min(count, len(self.live))),
            *_taken(self.fenced, self.start + partition, count - len(self.live)),
        )


def ring_of(brokers: Sequence[BrokerRegistration], count: int, rng: Chance) -> Ring:
    """Build the ring for partitions with `count` replicas; raises InvalidReplicationFactor."""
    usable = [broker for broker in brokers if broker.fenced or not broker.shutting_down]
    live = tuple(broker for broker in usable if broker.is_live)
    if count > len(usable):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {count} time(s): The target replication factor "
            f"of {count} cannot be reached because only {len(usable)} broker(s) are registered."
        )
    if not live:
        raise InvalidReplicationFactor("All brokers are currently fenced.")
    fenced = tuple(broker for broker in usable if not broker.is_live)
    return Ring(_interleaved(live), _interleaved(fenced), rng.randrange(len(live)))


def check_assigned(replicas: tuple[int, ...], registered: Container[int]) -> None:
    """Raise InvalidReplicaAssignment unless a manual assignment is valid."""
    if not replicas:
        raise InvalidReplicaAssignment(
            "The manual partition assignment includes an empty replica list."
        )
    for broker_id, times in sorted(Counter(replicas).items()):
        if broker_id not in registered:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
        if times > 1:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )


def _interleaved(brokers: Sequence[BrokerRegistration]) -> tuple[BrokerRegistration, ...]:
    """Return the brokers such that neighbours are in different racks, as far as possible."""
    racks: dict[str | None, list[BrokerRegistration]] = {}
    for broker in sorted(brokers, key=lambda one: one.broker_id):
        racks.setdefault(broker.rack, []).append(broker)
    longest = max(map(len, racks.values()), default=0)
    return tuple(
        rack[place] for place in range(longest) for rack in racks.values() if place < len(rack)
    )


def _taken(ring: Sequence[BrokerRegistration], start: int, count: int) -> tuple[int, ...]:
    """Take `count` brokers from `start` on, preferring racks that are not used yet."""
    if count <= 0:
        return ()
    turned = [ring[(start + place) % len(ring)] for place in range(len(ring))]
    seen: set[str | None] = set()
    first: list[int] = []
    later: list[int] = []
    for broker in turned:
        (later if broker.rack in seen else first).append(broker.broker_id)
        seen.add(broker.rack)
    return tuple([*first, *later][:count])
