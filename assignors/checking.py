"""Checks that an assignor returned a valid assignment."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from raylog.assignors.api import MemberAssignment, PluginError, Topic


class InvalidAssignment(PluginError):
    """An assignor raised, took too long or returned an invalid result. The message names both."""


def check(
    name: str,
    found: Mapping[str, MemberAssignment],
    members: Collection[str],
    topics: Mapping[str, Topic],
    *,
    shares_partitions: bool,
) -> None:
    """Raise InvalidAssignment for unknown members, topics or partitions, and for duplicates.

    `members` are ids. Partitions without a member are allowed, since an assignor may hold some
    back.
    """
    takers: dict[tuple[str, int], str] = {}
    for member_id, assignment in found.items():
        if member_id not in members:
            raise InvalidAssignment(f"assignor {name!r} gives to unknown member {member_id!r}")
        for topic, partitions in assignment.partitions.items():
            _check_numbers(name, topic, partitions, topics)
            for partition in partitions:
                taker = takers.setdefault((topic, partition), member_id)
                if taker != member_id and not shares_partitions:
                    raise InvalidAssignment(
                        f"assignor {name!r} gives {topic}-{partition} to both {taker!r} "
                        f"and {member_id!r}, and does not say that it shares partitions"
                    )


def _check_numbers(
    name: str, topic: str, partitions: Collection[int], topics: Mapping[str, Topic]
) -> None:
    """Check the partitions of a topic that one member got."""
    if topic not in topics:
        raise InvalidAssignment(
            f"assignor {name!r} gives partitions of {topic!r}, which is not a topic of this group"
        )
    count = topics[topic].partitions
    for partition in partitions:
        if not 0 <= partition < count:
            raise InvalidAssignment(
                f"assignor {name!r} gives {topic}-{partition}, but the topic has {count} partitions"
            )
    if len(set(partitions)) < len(partitions):
        raise InvalidAssignment(f"assignor {name!r} gives a member a partition of {topic!r} twice")
