"""The users of a scenario as Locust classes.

Importing this package imports locust, which has gevent patch the standard library.
"""

from __future__ import annotations

import gc
from typing import Any

from locust import User

from raylog.loadtest.local import Local
from raylog.loadtest.users.base import LoadUser
from raylog.loadtest.users.consuming import CatchUpUser, ConsumerUser
from raylog.loadtest.users.grouped import GroupUser
from raylog.loadtest.users.managing import AdminUser, ConnectionChurnUser
from raylog.loadtest.users.producing import ProducerUser
from raylog.loadtest.users.transactional import TransactionalUser

_USERS: dict[str, type[LoadUser[Any]]] = {
    "producer": ProducerUser,
    "transactional": TransactionalUser,
    "consumer": ConsumerUser,
    "group": GroupUser,
    "catch-up": CatchUpUser,
    "admin": AdminUser,
    "connection-churn": ConnectionChurnUser,
}


def user_classes(local: Local) -> list[type[User]]:
    """A class for each entry of the scenario. Its `fixed_count` is the entry's `count`.

    The count is over all processes, as Locust's master expects. `Local.take_seat` says how to
    spread users over several processes. Call this when everything is imported: existing objects are
    excluded from garbage collection, which would delay all users by 20 to 50 ms now and then.
    """
    classes: list[type[User]] = []
    for number, entry in enumerate(local.scenario.users):
        base = _USERS[entry.kind]
        name = f"{base.__name__}{number}"
        body = {
            "__doc__": base.__doc__,
            "abstract": False,
            "entry": entry,
            "fixed_count": entry.count,
            "local": local,
            "number": number,
        }
        classes.append(type(name, (base,), body))
    gc.collect()
    gc.freeze()
    return classes
