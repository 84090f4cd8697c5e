"""Handles SIGTERM in a Ray worker.

A worker's main thread belongs to Ray. No asynchronous actor ever runs there, so an actor cannot set
a handler. Ray's own handler ends the process at once by a function of its module, which is replaced
here by one that notifies the actor. The end of the raylet is another matter: it kills its workers
(SIGKILL) within milliseconds of its own SIGTERM, and `ray stop` ends it first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ray._private import worker

log = logging.getLogger(__name__)
_ENDS_PROCESS = "raise_sys_exit_with_custom_error_message"


def on_sigterm(on_signal: Callable[[], None]) -> None:
    """Run `on_signal` in the main thread at each SIGTERM, instead of ending the process."""
    if not hasattr(worker, _ENDS_PROCESS):
        log.error("this version of Ray handles SIGTERM in an unknown way: brokers do not drain")
        return

    def hear(*_: object, **__: object) -> None:
        on_signal()

    setattr(worker, _ENDS_PROCESS, hear)
