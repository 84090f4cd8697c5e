"""Mistakes about lost and older directories, planted like those of `planted`."""

from __future__ import annotations

from contextlib import ExitStack

from raylog.actors.controller.rules.quorum import QuorumRules
from raylog.actors.controller.rules.voters import VoterControl
from raylog.actors.metadata import followed
from tests.sim.planting import Plant, plants_into, replace

DISASTER_PLANTS: dict[str, Plant] = {}


plant = plants_into(DISASTER_PLANTS)


@plant
def founds_anew_where_metadata_is_lost(stack: ExitStack) -> None:
    """Empty voters found a cluster, whatever their directories have known."""

    replace(stack, QuorumRules, "_require_new", lambda _: None)
    replace(stack, followed, "contradiction", lambda *_: None)


@plant
def follows_older_metadata(stack: ExitStack) -> None:
    """A broker follows metadata that lacks what it has followed before."""
    replace(stack, followed, "contradiction", lambda *_: None)


@plant
def does_not_grow(stack: ExitStack) -> None:
    """A cluster that began with one broker keeps its single voter."""
    replace(stack, VoterControl, "wanted", lambda *_: None)
