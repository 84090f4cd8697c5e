"""Mistakes about lost and older directories, planted as those of `planted` are."""

from __future__ import annotations

from contextlib import ExitStack

from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.voters import VoterControl
from raylog.actors.metadata import followed
from tests.sim.planting import Plant, replace

DISASTER_PLANTS: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    """Name a mistake by its function."""
    DISASTER_PLANTS[function.__name__] = function
    return function


@plant
def founds_anew_where_metadata_is_lost(stack: ExitStack) -> None:
    """Empty voters found a cluster, whatever their directories have known."""

    async def mistaken(*_: object) -> None:
        return None

    replace(stack, VoterQuorum, "_require_new", mistaken)
    replace(stack, followed, "contradiction", lambda *_: None)


@plant
def follows_older_metadata(stack: ExitStack) -> None:
    """A broker follows metadata that lacks what it has followed."""
    replace(stack, followed, "contradiction", lambda *_: None)


@plant
def does_not_grow(stack: ExitStack) -> None:
    """A cluster that began with one broker keeps its one voter."""
    replace(stack, VoterControl, "wanted", lambda *_: None)
