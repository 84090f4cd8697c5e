"""Mistakes about groups that replicated logs have made, planted like those of `planted`."""

from __future__ import annotations

from contextlib import ExitStack

from raylog.actors.group.loading import Loading
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.existing import ExistingTopics
from raylog.actors.group.rules.pending import StoredOffset
from tests.sim.planting import Plant, plants_into, replace

GROUP_PLANTS: dict[str, Plant] = {}


plant = plants_into(GROUP_PLANTS)


@plant
def takes_offsets_of_a_deleted_topic(stack: ExitStack) -> None:
    """Offsets belong to the topic's name, so those of a deleted topic count for its successor."""

    def mistaken(topics: ExistingTopics, topic: str, _: StoredOffset) -> bool:
        return topic in topics.image.topic_ids

    replace(stack, ExistingTopics, "have", mistaken)


@plant
def gives_partitions_that_are_owned(stack: ExitStack) -> None:
    """A member is assigned partitions that another one has not revoked yet."""
    replace(stack, GroupState, "is_free", lambda *_: True)


@plant
def loses_an_offset_as_it_loads(stack: ExitStack) -> None:
    """A coordinator that takes over ignores the last key that it has read."""
    place_some = Loading.place_some

    def mistaken(loading: Loading) -> None:
        if loading.commits:
            loading.commits.popitem()
        place_some(loading)

    replace(stack, Loading, "place_some", mistaken)
