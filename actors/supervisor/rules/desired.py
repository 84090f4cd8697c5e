"""The desired state of a cluster, as stored outside the metadata: which brokers run where.

The metadata contains it (`BrokerWanted`), but can only be read where brokers run. So there are
copies:

| copy                                    | written by     | for                                   |
|-----------------------------------------|----------------|---------------------------------------|
| `cluster/<id>` in Ray's key-value store | the supervisor | starting brokers, finding the cluster |
| `wanted.json` in data directories       | each broker    | the same, when Ray's store is lost    |

Each copy contains its metadata offset; the copy with the highest offset is the valid one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from raylog.actors.metadata.records import BrokerWanted, Voters
from raylog.actors.names import broker_name
from raylog.actors.places import Place, Share
from raylog.wire.errors import KafkaStorageError

CLUSTER_KEY = "cluster/"
"""Prefix of clusters' keys in Ray's key-value store."""
VERSION = 1
NOT_FOUNDED = -1
"""The offset of a new cluster, whose metadata does not contain the wanted brokers yet."""


@dataclass(frozen=True, slots=True)
class DesiredCluster:
    """The desired state of a cluster."""

    cluster_id: str
    brokers: tuple[BrokerWanted, ...]
    voters: Voters
    """The voters of the metadata log, or its initial voters."""
    offset: int = NOT_FOUNDED
    """Exclusive offset of the metadata that this is a copy of."""
    secret_source: str = ""
    """Where actors find the secret of links; unknown in a data directory."""
    stopped: bool = False
    """Whether no broker should run for now."""
    is_in_metadata: bool = False
    """Whether the metadata contains this; until then it is ahead of the metadata."""

    @property
    def key(self) -> str:
        """Its key in Ray's key-value store."""
        return cluster_key(self.cluster_id)

    def broker(self, broker_id: int) -> BrokerWanted | None:
        """Return the broker with an id, or None."""
        return next((one for one in self.brokers if one.broker_id == broker_id), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "brokers": [one._asdict() for one in self.brokers],
            "voters": self.voters,
            "offset": self.offset,
            "secret_source": self.secret_source,
            "stopped": self.stopped,
            "told": self.is_in_metadata,  # the name that older builds read
        }

    def to_bytes(self) -> bytes:
        """Encode it as JSON."""
        return json.dumps(self.to_json()).encode()


def cluster_key(cluster_id: str) -> str:
    """Return the key of a cluster in Ray's key-value store."""
    return f"{CLUSTER_KEY}{cluster_id}"


def read_desired(contents: bytes, source: str) -> DesiredCluster:
    """Decode the output of `to_bytes`; raises KafkaStorageError, which names the source."""
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
            is_in_metadata=values["told"] is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise KafkaStorageError(
            f"{source} says no brokers: it begins with {contents[:40]!r} ({broken})"
        ) from broken


def _wanted(**values: Any) -> BrokerWanted:
    return BrokerWanted(**{**values, "replaced": tuple(values.get("replaced", ()))})


def newest(copies: Iterable[DesiredCluster]) -> DesiredCluster | None:
    """Return the copy with the highest metadata offset, or None if there is none."""
    return max(copies, key=lambda one: one.offset, default=None)


def place_of(cluster_id: str, wanted: BrokerWanted) -> Place:
    """Return where the processes of a broker run."""
    return Place(
        dict(wanted.labels),
        Share(share_name(cluster_id, wanted.broker_id), wanted.cpus, wanted.memory_bytes),
    )


def share_name(cluster_id: str, broker_id: int) -> str:
    """Return the name of a broker's resource reservation on its node."""
    return broker_name(cluster_id, broker_id)
