"""Hearing SIGTERM in a worker of Ray.

A worker's main thread belongs to Ray, and no actor that is asynchronous ever runs there, so none
can set a handler. Ray's own one ends the process at once by a function of its module, which is put
aside here for one that tells the actor. The raylet's end is another matter: it kills its workers
(SIGKILL) within milliseconds of its own SIGTERM, and `ray stop` ends it first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ray._private import worker

log = logging.getLogger(__name__)
_ENDS_PROCESS = "raise_sys_exit_with_custom_error_message"


def on_sigterm(told: Callable[[], None]) -> None:
    """Have `told` run in the main thread at each SIGTERM, instead of an end of the process."""
    if not hasattr(worker, _ENDS_PROCESS):
        log.error("this Ray ends its workers at SIGTERM in an unknown way: brokers do not drain")
        return

    def hear(*_: object, **__: object) -> None:
        told()

    setattr(worker, _ENDS_PROCESS, hear)
