"""Which broker goes to which node when a cluster is started or grows.

A node that is labelled `raylog-broker=N` gets broker N, and gets it back whatever id the node has
when it returns. Where no node is labelled every node gets one, held by the node's id: it comes back
with that node only. A node that has a broker's directory gets that broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raylog.actors.broker.listeners import check_reach, is_beyond_loopback, is_wildcard
from raylog.actors.cluster import VOTERS_MAX, listeners_of
from raylog.actors.config import BrokerSettings
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.node_hosts import NODE_HOST
from raylog.actors.runtime.base import NODE_ID_LABEL, NodeEntry
from raylog.actors.supervisor.desired import NOT_FOUNDED, DesiredCluster, newest, read_desired
from raylog.actors.supervisor.survey import DIRECTORY_PREFIX, NodeFacts
from raylog.wire.errors import InconsistentClusterId, InvalidConfig

LABEL = "raylog-broker"
"""Of Ray nodes: the id of the broker that is for the node."""


@dataclass(frozen=True, slots=True)
class PlacementAsked:
    """What brokers are to be like."""

    data: str
    """Absolute; on each node."""
    port: int
    brokers: int | None = None
    """How many; None: one for each labelled node, or for each node."""
    first_broker_id: int = 0
    host: str | None = None
    """Where all listen; None: each at its node's address."""
    advertised_host: str | None = None
    racks: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    insecure: bool = False
    same_node: bool = False
    cpus: float = 0.5
    memory_bytes: int = 300 << 20


@dataclass(frozen=True, slots=True)
class SurveyedNode:
    """A node and what was found there."""

    node: NodeEntry
    facts: NodeFacts


def placed(
    asked: PlacementAsked, nodes: Sequence[SurveyedNode], known: Sequence[BrokerWanted] = ()
) -> list[BrokerWanted]:
    """Brokers for nodes that have none of the known ones.

    Raises InvalidConfig where labels or nodes do not suffice, or where other machines could reach
    brokers and nobody has asked for that.
    """
    taken = {broker.broker_id for broker in known}
    seats = [
        (broker_id, one)
        for broker_id, one in (_labelled(nodes) or _unlabelled(asked, nodes, taken))
        if broker_id not in taken
    ]
    if asked.brokers is not None:
        if len(seats) < asked.brokers - len(known):
            raise InvalidConfig(
                f"{asked.brokers} brokers were asked for, and {len(seats) + len(known)} nodes "
                f"carry the label {LABEL}"
            )
        seats = seats[: asked.brokers - len(known)]
    ports: Counter[str] = Counter()
    found = []
    for at, (broker_id, one) in enumerate(seats, len(known)):
        # A node may come back with another address: where it is not loopback it is filled in there.
        own = NODE_HOST if is_beyond_loopback(one.node.address) else one.node.address
        host = asked.host or own
        advertised = asked.advertised_host
        if advertised is None and is_wildcard(host):
            advertised = own
        port = asked.port + ports[one.node.address] if asked.port else 0
        ports[one.node.address] += 1
        settings = {
            **listeners_of(host, port, advertised),
            **({"broker.rack": asked.racks[at % len(asked.racks)]} if asked.racks else {}),
            **asked.settings,
        }
        check_reach(BrokerSettings(settings), insecure=asked.insecure)
        found.append(
            BrokerWanted(
                broker_id,
                labels_of(one.node),
                f"{asked.data}/{DIRECTORY_PREFIX}{broker_id}",
                settings,
                asked.cpus,
                asked.memory_bytes,
            )
        )
    return found


def labels_of(node: NodeEntry) -> dict[str, str]:
    """What a broker is held to its node by."""
    name = LABEL if LABEL in node.labels else NODE_ID_LABEL
    return {name: node.labels[name]}


def _labelled(nodes: Sequence[SurveyedNode]) -> list[tuple[int, SurveyedNode]]:
    """Broker ids and their nodes, as labels have it; raises InvalidConfig."""
    found: dict[int, SurveyedNode] = {}
    for one in nodes:
        label = one.node.labels.get(LABEL)
        if label is None:
            continue
        if not (label.isascii() and label.isdecimal()):
            raise InvalidConfig(
                f"node {one.node.node_id} is labelled {LABEL}={label}, expected is a broker's id"
            )
        other = found.setdefault(int(label), one)
        if other is not one:
            raise InvalidConfig(
                f"the nodes {other.node.node_id} and {one.node.node_id} are both labelled "
                f"{LABEL}={label}, expected is one"
            )
    return sorted(found.items(), key=lambda seat: seat[0])


def _unlabelled(
    asked: PlacementAsked, nodes: Sequence[SurveyedNode], taken: set[int]
) -> list[tuple[int, SurveyedNode]]:
    """One broker for each node, or more where that is asked for; raises InvalidConfig."""
    wanted = len(nodes) if asked.brokers is None else asked.brokers
    if wanted > len(nodes) and not asked.same_node:
        raise InvalidConfig(
            f"{wanted} brokers were asked for, and Ray has {len(nodes)} nodes: with --same-node "
            "several are on one, and are lost together with it"
        )
    in_order = sorted(nodes, key=lambda one: (one.node.address, one.node.node_id))
    seats = {identity.broker_id: one for one in in_order for identity in one.facts.identities}
    fresh = (n for n in range(asked.first_broker_id, 1 << 31) if n not in seats and n not in taken)
    used = Counter(one.node.node_id for one in seats.values())
    while len(seats) < wanted:
        emptiest = min(in_order, key=lambda one: used[one.node.node_id])
        used[emptiest.node.node_id] += 1
        seats[next(fresh)] = emptiest
    return sorted(seats.items(), key=lambda seat: seat[0])


def surviving(nodes: Sequence[SurveyedNode]) -> DesiredCluster | None:
    """The cluster that data directories know, where Ray's store does not; None if none does.

    Raises InconsistentClusterId for directories of several clusters.
    """
    identities = [identity for one in nodes for identity in one.facts.identities]
    ids = sorted({identity.cluster_id for identity in identities})
    if len(ids) > 1:
        raise InconsistentClusterId(f"directories of different clusters: {', '.join(ids)}")
    copies = [
        read_desired(copy, f"a directory on node {one.node.node_id}")
        for one in nodes
        for copy in one.facts.wanted
    ]
    found = newest(copies)
    if found is None and identities:
        voters = max((identity.voters for identity in identities), key=len)
        return DesiredCluster(ids[0], (), voters)
    return found


def settled(desired: DesiredCluster, nodes: Sequence[SurveyedNode]) -> tuple[BrokerWanted, ...]:
    """The wanted brokers, those without a label of their own where their directories are now."""
    where = {identity.broker_id: one.node for one in nodes for identity in one.facts.identities}
    return tuple(
        wanted._replace(labels=labels_of(where[wanted.broker_id]))
        if NODE_ID_LABEL in wanted.labels and wanted.broker_id in where
        else wanted
        for wanted in desired.brokers
    )


def is_misplaced(desired: DesiredCluster, nodes: Sequence[SurveyedNode]) -> bool:
    """Whether a cluster that never ran was asked for before the nodes with labels were there.

    No metadata says what it wants, so none of its brokers has served, and all of them are held by
    ids of nodes, while by now nodes carry labels: it is placed anew, as if it were not known.
    """
    is_new = desired.offset == NOT_FOUNDED and not desired.told
    by_id = all(NODE_ID_LABEL in one.labels for one in desired.brokers)
    has_data = any(one.facts.identities for one in nodes)
    return is_new and by_id and not has_data and any(LABEL in one.node.labels for one in nodes)


def first_voters(brokers: Sequence[BrokerWanted]) -> list[int]:
    """Who holds the metadata log of a new cluster, at first."""
    ids = [broker.broker_id for broker in brokers]
    return ids[: VOTERS_MAX if len(ids) >= VOTERS_MAX else 1]
