"""Where Ray puts an actor: on nodes with labels, in the share that is kept free for it there.

A share is a placement group of one bundle. Ray keeps its CPU and memory free also while an actor in
it restarts, when other tasks would take them, and moves it to another node with the labels when its
own is gone. Actors in it ask for nothing more.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util import get_placement_group, placement_group, remove_placement_group
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from raylog.actors.runtime.base import PeerTimeout, Place, Share

SHARE_TIMEOUT_S = 20.0


def options_of(place: Place | None) -> dict[str, Any]:
    """Ray's options for an actor in a place. Blocking; raises PeerTimeout where it has no room."""
    if place is None:
        # Near who starts it: one node less whose end it suffers from.
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
    try:
        ray.get(group.ready(), timeout=SHARE_TIMEOUT_S)
    except GetTimeoutError as late:
        wanted = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise PeerTimeout(
            f"no node with {wanted} has {share.cpus:g} CPUs, {share.memory_bytes:,} bytes of memory"
            f"{''.join(f', {one}' for one in share.resources)} free within {SHARE_TIMEOUT_S:g} s"
        ) from late
    return group


def release(share: str) -> None:
    """Give a share back, with all actors that are still in it; gone is fine. Blocking."""
    try:
        group = get_placement_group(share)
    except ValueError:
        return
    remove_placement_group(group)
