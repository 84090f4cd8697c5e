"""The users of a scenario, as classes for Locust.

Importing this imports locust, which lets gevent patch the standard library.
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
    """A class for each entry of the scenario, named after it; `fixed_count` is its `count`.

    The count is over all processes, as Locust's master wants it. `Local.take_seat` says how users
    are to be spread over several. Call it when everything is imported: what is there by then is
    left out of garbage collection, which would hold all users up for 20 to 50 ms now and then.
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
