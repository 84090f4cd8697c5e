"""Assigns brokers to nodes when a cluster is started or grows.

A node labelled `raylog-broker=N` gets broker N, and gets it back when it returns, even with another
node id. If no node is labelled, every node gets a broker, bound to the node's id: it only returns
with that node. A node that has a broker's directory gets that broker.
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
from raylog.actors.places import NODE_ID_LABEL, NodeEntry
from raylog.actors.supervisor.rules.desired import NOT_FOUNDED, DesiredCluster, newest, read_desired
from raylog.actors.supervisor.survey import DIRECTORY_PREFIX, NodeFacts
from raylog.wire.errors import InconsistentClusterId, InvalidConfig

LABEL = "raylog-broker"
"""Label of Ray nodes: the id of the broker for the node."""


@dataclass(frozen=True, slots=True)
class PlacementAsked:
    """The requested brokers."""

    data: str
    """Absolute path of the data directory, the same on each node."""
    port: int
    brokers: int | None = None
    """Number of brokers. None means one per labelled node, or else one per node."""
    first_broker_id: int = 0
    host: str | None = None
    """Host that all brokers listen at. None means the address of each broker's node."""
    advertised_host: str | None = None
    racks: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    insecure: bool = False
    same_node: bool = False
    cpus: float = 0.5
    memory_bytes: int = 300 << 20


@dataclass(frozen=True, slots=True)
class SurveyedNode:
    """A node and the facts found on it."""

    node: NodeEntry
    facts: NodeFacts


def placed(
    request: PlacementAsked, nodes: Sequence[SurveyedNode], known: Sequence[BrokerWanted] = ()
) -> list[BrokerWanted]:
    """Assign brokers to nodes that have none of the known ones.

    Raises InvalidConfig if there are not enough labels or nodes, or if other machines could reach
    the brokers without `insecure`.
    """
    taken = {broker.broker_id for broker in known}
    seats = [
        (broker_id, one)
        for broker_id, one in (_labelled(nodes) or _unlabelled(request, nodes, taken))
        if broker_id not in taken
    ]
    if request.brokers is not None:
        if len(seats) < request.brokers - len(known):
            raise InvalidConfig(
                f"{request.brokers} brokers were asked for, and {len(seats) + len(known)} nodes "
                f"carry the label {LABEL}"
            )
        seats = seats[: request.brokers - len(known)]
    ports: Counter[str] = Counter()
    found = []
    for at, (broker_id, one) in enumerate(seats, len(known)):
        # A node may return with another address, so unless that is loopback it is filled in
        # there.
        own = NODE_HOST if is_beyond_loopback(one.node.address) else one.node.address
        host = request.host or own
        advertised = request.advertised_host
        if advertised is None and is_wildcard(host):
            advertised = own
        port = request.port + ports[one.node.address] if request.port else 0
        ports[one.node.address] += 1
        settings = {
            **listeners_of(host, port, advertised),
            **({"broker.rack": request.racks[at % len(request.racks)]} if request.racks else {}),
            **request.settings,
        }
        check_reach(BrokerSettings(settings), insecure=request.insecure)
        found.append(
            BrokerWanted(
                broker_id,
                labels_of(one.node),
                f"{request.data}/{DIRECTORY_PREFIX}{broker_id}",
                settings,
                request.cpus,
                request.memory_bytes,
            )
        )
    return found


def labels_of(node: NodeEntry) -> dict[str, str]:
    """Return the labels that bind a broker to its node."""
    name = LABEL if LABEL in node.labels else NODE_ID_LABEL
    return {name: node.labels[name]}


def _labelled(nodes: Sequence[SurveyedNode]) -> list[tuple[int, SurveyedNode]]:
    """Return broker ids and their nodes according to labels; raises InvalidConfig."""
    found: dict[int, SurveyedNode] = {}
    for one in nodes:
        label = one.node.labels.get(LABEL)
        if label is None:
            continue
        if not (label.isascii() and label.isdecimal()):
            raise InvalidConfig(
                f"node {one.node.node_id} is labelled {LABEL}={label}, expected a broker's id"
            )
        other = found.setdefault(int(label), one)
        if other is not one:
            raise InvalidConfig(
                f"the nodes {other.node.node_id} and {one.node.node_id} are both labelled "
                f"{LABEL}={label}, expected one"
            )
    return sorted(found.items(), key=lambda seat: seat[0])


def _unlabelled(
    request: PlacementAsked, nodes: Sequence[SurveyedNode], taken: set[int]
) -> list[tuple[int, SurveyedNode]]:
    """Assign one broker per node, or more if requested; raises InvalidConfig."""
    wanted = len(nodes) if request.brokers is None else request.brokers
    if wanted > len(nodes) and not request.same_node:
        raise InvalidConfig(
            f"{wanted} brokers were asked for, and Ray has {len(nodes)} nodes: with --same-node "
            "several are on one, and are lost together with it"
        )
    in_order = sorted(nodes, key=lambda one: (one.node.address, one.node.node_id))
    seats = {identity.broker_id: one for one in in_order for identity in one.facts.identities}
    fresh = (
        n for n in range(request.first_broker_id, 1 << 31) if n not in seats and n not in taken
    )
    used = Counter(one.node.node_id for one in seats.values())
    while len(seats) < wanted:
        emptiest = min(in_order, key=lambda one: used[one.node.node_id])
        used[emptiest.node.node_id] += 1
        seats[next(fresh)] = emptiest
    return sorted(seats.items(), key=lambda seat: seat[0])


def surviving(nodes: Sequence[SurveyedNode]) -> DesiredCluster | None:
    """Return the cluster found in data directories, for when Ray's store has none; or None.

    Raises InconsistentClusterId if the directories belong to different clusters.
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
    """Return the wanted brokers; those bound by node id move to where their directories are."""
    where = {identity.broker_id: one.node for one in nodes for identity in one.facts.identities}
    return tuple(
        wanted._replace(labels=labels_of(where[wanted.broker_id]))
        if NODE_ID_LABEL in wanted.labels and wanted.broker_id in where
        else wanted
        for wanted in desired.brokers
    )


def is_misplaced(desired: DesiredCluster, nodes: Sequence[SurveyedNode]) -> bool:
    """Whether a cluster that never ran was placed before the nodes with labels joined.

    No metadata describes it, so none of its brokers has served, and all are bound to node ids
    although some nodes now carry labels: it is placed again as if it were unknown.
    """
    is_new = desired.offset == NOT_FOUNDED and not desired.is_in_metadata
    by_id = all(NODE_ID_LABEL in one.labels for one in desired.brokers)
    has_data = any(one.facts.identities for one in nodes)
    return is_new and by_id and not has_data and any(LABEL in one.node.labels for one in nodes)


def first_voters(brokers: Sequence[BrokerWanted]) -> list[int]:
    """Return the initial voters of a new cluster."""
    ids = [broker.broker_id for broker in brokers]
    return ids[: VOTERS_MAX if len(ids) >= VOTERS_MAX else 1]
