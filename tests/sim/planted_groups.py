"""Mistakes that groups of replicated logs have made, planted as those of `planted` are."""

from __future__ import annotations

from contextlib import ExitStack

from raylog.actors.group.consumer.state import GroupState
from raylog.actors.group.existing import ExistingTopics
from raylog.actors.group.loading import Loading
from raylog.actors.group.pending import StoredOffset
from tests.sim.planting import Plant, replace

GROUP_PLANTS: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    """Name a mistake by its function."""
    GROUP_PLANTS[function.__name__] = function
    return function


@plant
def takes_offsets_of_a_deleted_topic(stack: ExitStack) -> None:
    """Offsets go by the topic's name: those of a deleted one are those of the next."""

    def mistaken(topics: ExistingTopics, topic: str, _: StoredOffset) -> bool:
        return topic in topics.image.topic_ids

    replace(stack, ExistingTopics, "have", mistaken)


@plant
def gives_partitions_that_are_owned(stack: ExitStack) -> None:
    """A member is given partitions that another one has not given up yet."""
    replace(stack, GroupState, "is_free", lambda *_: True)


@plant
def loses_an_offset_as_it_loads(stack: ExitStack) -> None:
    """A coordinator that takes over does not take the last key that it has read."""
    place_some = Loading.place_some

    def mistaken(loading: Loading) -> None:
        if loading.commits:
            loading.commits.popitem()
        place_some(loading)

    replace(stack, Loading, "place_some", mistaken)
