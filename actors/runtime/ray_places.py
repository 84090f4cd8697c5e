"""Places actors on Ray: on nodes with labels, in the broker's share of the node.

A share is a placement group of one bundle. Ray keeps its CPU and memory reserved while an actor in
it restarts, when other tasks would take them, and moves it to another node with the labels if its
node is gone. Actors inside request nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util import get_placement_group, placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from raylog.actors.node_hosts import fill
from raylog.actors.places import NodeEntry, Place, Share
from raylog.actors.runtime.base import PeerTimeout
from raylog.actors.runtime.link_secret import FROM_ENVIRONMENT, FROM_RAY
from raylog.actors.runtime.link_settings import LinkPlace, LinkSettings

SHARE_TIMEOUT_S = 20.0


def options_of(place: Place | None, hosts: Sequence[dict[str, str]] = ()) -> dict[str, Any]:
    """Return Ray's options for an actor in a place, or else on one of the hosts, in this order.

    Blocking; raises PeerTimeout if a place has no room.
    """
    if place is None and hosts:
        others = [{"label_selector": labels} for labels in hosts[1:]]
        return {"label_selector": hosts[0], "fallback_strategy": others}
    if place is None:
        # Near its spawner, so that it depends on one node less.
        near = ray.get_runtime_context().get_node_id()
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(near, soft=True)}
    if place.share is None:
        return {"label_selector": place.labels}
    group = _group(place.share, place.labels)
    return {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0)}


def _group(share: Share, labels: dict[str, str]) -> PlacementGroup:
    group: PlacementGroup
    try:
        group = get_placement_group(share.name)
    except ValueError:
        bundle = {"CPU": share.cpus, "memory": share.memory_bytes, **share.resources}
        group = placement_group(
            [{name: amount for name, amount in bundle.items() if amount}],
            name=share.name,
            lifetime="detached",
            bundle_label_selector=[labels],
        )
    if not group.wait(SHARE_TIMEOUT_S):
        wanted = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise PeerTimeout(
            f"no node with {wanted} has {share.cpus:g} CPUs, {share.memory_bytes:,} bytes of memory"
            f"{''.join(f', {one}' for one in share.resources)} free within {SHARE_TIMEOUT_S:g} s"
        )
    return group


def release(share: str) -> None:
    """Remove a share with all actors that are still in it, if it exists. Blocking."""
    try:
        group = get_placement_group(share)
    except ValueError:
        return
    remove_placement_group(group)


def this_node() -> NodeEntry:
    """Return the Ray node of this process. Blocking."""
    context = ray.get_runtime_context()
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's
    labels: Any = context.get_node_labels()  # values are strings, whatever Ray declares
    return NodeEntry(context.get_node_id(), address, dict(labels))


def outside(links: LinkSettings | None) -> LinkPlace | None:
    """Return where to accept links from other machines; None if Ray is local. Blocking."""
    node = this_node()
    if ipaddress.ip_address(node.address).is_loopback:
        return None
    links = links or LinkSettings()
    return links.on_node(node.address, lambda host: fill(host, node, links.external_host_command))


def starts_directory(secret_source: str) -> Path:
    """Return the directory of restart records: beside the secret, or in Ray's session directory."""
    if secret_source.startswith((FROM_ENVIRONMENT, FROM_RAY)):
        node: Any = ray._private.worker._global_node  # Ray declares it None
        return Path(node.get_session_dir_path()) / "raylog-starts"
    return Path(secret_source).parent / "starts"
