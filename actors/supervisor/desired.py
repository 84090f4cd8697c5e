"""Which brokers of a cluster shall run where, as it is kept outside the metadata.

The metadata has it (`BrokerWanted`), which can only be read where brokers run. So there are copies:

| copy                                    | written by     | for                                   |
|-----------------------------------------|----------------|---------------------------------------|
| `cluster/<id>` in Ray's key-value store | the supervisor | starting brokers, finding the cluster |
| `wanted.json` in data directories       | each broker    | the same, when Ray's store is lost    |

A copy says by its metadata offset how old it is: the newest counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from raylog.actors.metadata.records import BrokerWanted, Voters
from raylog.actors.names import broker_name
from raylog.actors.runtime.base import Place, Share
from raylog.wire.errors import KafkaStorageError

CLUSTER_KEY = "cluster/"
"""What the keys of clusters begin with, in Ray's key-value store."""
VERSION = 1
NOT_FOUNDED = -1
"""The offset while no metadata says what is wanted: the cluster is new."""


@dataclass(frozen=True, slots=True)
class DesiredCluster:
    """A cluster as it shall be."""

    cluster_id: str
    brokers: tuple[BrokerWanted, ...]
    voters: Voters
    """Who holds the metadata log, or shall hold it first."""
    offset: int = NOT_FOUNDED
    """Of the metadata that says so (exclusive)."""
    secret_source: str = ""
    """Where actors find the secret of links; unknown in a data directory."""
    stopped: bool = False
    """Whether no broker shall run for now."""
    told: bool = False
    """Whether the metadata has been told; until then this says more than the metadata does."""

    @property
    def key(self) -> str:
        """Under which Ray's key-value store has it."""
        return cluster_key(self.cluster_id)

    def broker(self, broker_id: int) -> BrokerWanted | None:
        """The broker of an id."""
        return next((one for one in self.brokers if one.broker_id == broker_id), None)

    def to_json(self) -> dict[str, Any]:
        """It as plain values."""
        return {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "brokers": [one._asdict() for one in self.brokers],
            "voters": self.voters,
            "offset": self.offset,
            "secret_source": self.secret_source,
            "stopped": self.stopped,
            "told": self.told,
        }

    def to_bytes(self) -> bytes:
        """It as JSON."""
        return json.dumps(self.to_json()).encode()


def cluster_key(cluster_id: str) -> str:
    """Under which Ray's key-value store has a cluster."""
    return f"{CLUSTER_KEY}{cluster_id}"


def read_desired(contents: bytes, source: str) -> DesiredCluster:
    """What `to_bytes` has written; KafkaStorageError, naming the source, for anything else."""
    try:
        values = json.loads(contents)
        if values["version"] > VERSION:
            raise KafkaStorageError(
                f"{source} has format {values['version']}, this build knows {VERSION}"
            )
        return DesiredCluster(
            cluster_id=str(values["cluster_id"]),
            brokers=tuple(_wanted(**one) for one in values["brokers"]),
            voters=tuple((int(one), str(name)) for one, name in values["voters"]),
            offset=int(values["offset"]),
            secret_source=str(values["secret_source"]),
            stopped=values["stopped"] is True,
            told=values["told"] is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise KafkaStorageError(
            f"{source} says no brokers: it begins with {contents[:40]!r} ({broken})"
        ) from broken


def _wanted(**values: Any) -> BrokerWanted:
    return BrokerWanted(**{**values, "replaced": tuple(values.get("replaced", ()))})


def newest(copies: Iterable[DesiredCluster]) -> DesiredCluster | None:
    """The copy with the newest metadata; None if there is none."""
    return max(copies, key=lambda one: one.offset, default=None)


def place_of(cluster_id: str, wanted: BrokerWanted) -> Place:
    """Where the processes of a broker run."""
    return Place(
        dict(wanted.labels),
        Share(share_name(cluster_id, wanted.broker_id), wanted.cpus, wanted.memory_bytes),
    )


def share_name(cluster_id: str, broker_id: int) -> str:
    """The share that a broker has of its node."""
    return broker_name(cluster_id, broker_id)
