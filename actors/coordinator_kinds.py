"""The kinds of coordinators: a row each.

Another kind needs its role and topic (`actors/names.py`), a row here, a package `actors/ROLE` with
its shell in `actor.py`, a subclass of `CoordinatorActor`, and `rules/failures.py`, and its topic's
settings (`actors/config/coordinator_keys.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.names import GROUP, OFFSETS_TOPIC, TRANSACTION, TRANSACTIONS_TOPIC
from raylog.wire.api import ApiKey


class CoordinatorKind(NamedTuple):
    """What differs between the coordinators of one role and those of another."""

    label: str
    """What Ray calls their processes; the shell's class is this with `Actor` at its end."""
    topic: str
    """Holds their state: the leader of a partition coordinates the keys that it holds."""
    settings: str
    """Prefix of the broker settings of that topic."""
    topic_configs: dict[str, str]
    """What the topic is created with, besides those settings."""
    has_min_isr: bool
    """Whether one of those settings is the topic's min.insync.replicas."""
    key_type: int
    """Of their keys, in FindCoordinator."""
    key_field: str
    """The field of requests that has the key."""
    apis: tuple[ApiKey, ...]
    """Requests that a gateway forwards to them unchanged."""


KINDS = {
    GROUP: CoordinatorKind(
        label="GroupCoordinator",
        topic=OFFSETS_TOPIC,
        settings="offsets.topic",
        topic_configs={"compression.type": "producer"},
        has_min_isr=False,
        key_type=0,
        key_field="group_id",
        apis=(
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
        ),
    ),
    TRANSACTION: CoordinatorKind(
        label="TransactionCoordinator",
        topic=TRANSACTIONS_TOPIC,
        settings="transaction.state.log",
        topic_configs={
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        has_min_isr=True,
        key_type=1,
        key_field="transactional_id",
        apis=(ApiKey.END_TXN, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
    ),
}
"""By role."""
KIND_OF_TOPIC = {kind.topic: kind for kind in KINDS.values()}
"""The topics that coordinators create and write."""
