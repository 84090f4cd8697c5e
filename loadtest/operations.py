"""The operations by which requests are counted, and the users that perform them."""

from __future__ import annotations

from raylog.loadtest.scenario import TransactionalUsers, Users

PRODUCE = "produce"
END_TO_END = "end-to-end"
TRANSACTION = "transaction"
ABORT = "abort"
JOIN = "join"
REBALANCE = "rebalance"
COMMIT = "commit"
CATCH_UP = "catch-up"
CATCH_UP_POLL = "catch-up-poll"
CREATE = "create-topic"
DESCRIBE = "describe-topic"
DELETE = "delete-topic"
LIST_OFFSETS = "list-offsets"
LIST_GROUPS = "list-groups"
CONNECT = "connect"

BY_KIND = {
    "producer": (PRODUCE,),
    "transactional": (PRODUCE, TRANSACTION, ABORT),
    "consumer": (END_TO_END,),
    "group": (END_TO_END, JOIN, REBALANCE, COMMIT),
    "catch-up": (CATCH_UP, CATCH_UP_POLL),
    "admin": (CREATE, DESCRIBE, LIST_OFFSETS, LIST_GROUPS, DELETE),
    "connection-churn": (CONNECT,),
}
"""By the `kind` of users."""


def operations_of(users: Users) -> list[str]:
    """The operations of an entry's users."""
    found = list(BY_KIND[users.kind])
    if isinstance(users, TransactionalUsers):
        if users.aborted == 0:
            found.remove(ABORT)
        if users.aborted == 1:
            found.remove(TRANSACTION)
    return found
