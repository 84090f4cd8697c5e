"""Topics and groups of a run. They are created before users start, and removed at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable

from raylog.client import Admin, NewTopic
from raylog.loadtest.local import Local
from raylog.loadtest.scenario import GroupUsers
from raylog.wire.errors import GroupIdNotFound, KafkaError, NonEmptyGroup, UnknownTopicOrPartition

REPLICATION = 3
_LOOK_S = 0.2


def make(admin: Admin, local: Local, brokers: int, *, validate_only: bool = False) -> None:
    """Create the topics of a run, or check whether that is possible. Raises KafkaError."""
    admin.create_topics(
        [
            NewTopic(
                local.topic(name),
                one.partitions,
                one.replication or min(REPLICATION, brokers),
                configs=dict(one.settings),
            )
            for name, one in local.scenario.topics.items()
        ],
        validate_only=validate_only,
    )


def names(local: Local) -> list[str]:
    """The names of the topics in a run."""
    return [local.topic(name) for name in local.scenario.topics]


def may_be_left(names: Iterable[str], bootstrap: str) -> str:
    """A note that topics of a run may be left, and how to remove them."""
    return (
        "The topics of the run may still exist. Delete them with: raylog topics delete "
        f"{' '.join(names)} --bootstrap {bootstrap}"
    )


def groups(local: Local) -> list[str]:
    """The names of the groups in a run."""
    users = local.scenario.users
    return sorted({local.group(one.group) for one in users if isinstance(one, GroupUsers)})


def remove(admin: Admin, local: Local, wait_s: float) -> list[str]:
    """Remove a run's topics and groups. Returns what could not be removed, and why.

    Waits for a group until its members have left or its first rebalance has ended.
    """
    left = []
    for name in names(local):
        try:
            admin.delete_topics([name])
        except UnknownTopicOrPartition:
            continue
        except KafkaError as refused:
            left.append(f"topic {name}: {refused.code.name}")
    deadline = time.monotonic() + wait_s
    for group in groups(local):
        try:
            _remove_group(admin, group, deadline)
        except GroupIdNotFound:
            continue
        except KafkaError as refused:
            left.append(f"group {group}: {refused.code.name}")
    return left


def _remove_group(admin: Admin, group: str, deadline: float) -> None:
    while True:
        try:
            admin.delete_groups([group])
        except NonEmptyGroup:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)
        else:
            return
