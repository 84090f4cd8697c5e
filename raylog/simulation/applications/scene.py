"""What all applications of one simulation share."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from raylog.client.cluster import TopicPartition
from raylog.client.settings import ClientSettings
from raylog.simulation.applications.history import ClientHistory
from raylog.simulation.cluster import FIRST_PORT, Cluster
from raylog.simulation.properties import Checks, Property
from raylog.simulation.transactions.history import History, StableLedger

METADATA_AGES_MS = (1_000, 5_000, 300_000)
OPERATION_TIMEOUTS_MS = (6_000, 20_000)


@dataclass(slots=True)
class Scene:
    """The cluster, its ledgers and the checks."""

    cluster: Cluster
    checks: Checks
    transactions: History
    ledgers: dict[TopicPartition, StableLedger]
    history: ClientHistory = field(default_factory=ClientHistory)

    def client_settings(self, random: Random) -> ClientSettings:
        """The settings of one client, drawn at random."""
        addresses = [
            ("127.0.0.1", FIRST_PORT + number) for number in range(len(self.cluster.machines))
        ]
        random.shuffle(addresses)
        return ClientSettings(
            tuple(addresses),
            connect_timeout_ms=2_500,
            request_timeout_ms=2_500,
            operation_timeout_ms=random.choice(OPERATION_TIMEOUTS_MS),
            metadata_max_age_ms=random.choice(METADATA_AGES_MS),
        )

    def read(self, key: TopicPartition, offset: int, value: bytes) -> None:
        """Note that a consumer got a record."""
        before = self.ledgers[key].seen.setdefault(offset, value)
        same = before == value
        self.checks.hold(Property.ONE_VALUE_AN_OFFSET, same, key, offset, before, value)

    def written(self, key: TopicPartition, offset: int, value: bytes) -> None:
        """Note that a producer's record was acknowledged; the offset is -1 if it was not told."""
        self.ledgers[key].acknowledged[value] = offset

    def partitions(self, topic: str) -> list[TopicPartition]:
        """A topic's partitions."""
        return [key for key in self.ledgers if key.topic == topic]
