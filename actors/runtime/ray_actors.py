"""Ray's blocking calls about actors, each in its own thread that may be abandoned.

They ask Ray's head (GCS), which may stall for a minute or more. A caller with a deadline returns
then, and what it started still goes on to its end. One look-up serves all who wait for a name.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import ray
from ray.exceptions import ActorUnavailableError, RayError

from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.actors.runtime.ray_node import NAMESPACE

log = logging.getLogger(__name__)
LOOK_UP_TIMEOUT_MS = 90_000
"""Ray's own limit for a look-up is 60 s."""
BEGIN_RETRY_S = 0.02
END_RETRY_S = 1.0
END_TRIES = 600


class RunForeign(Protocol):
    """Run plug-in code, as `Runtime.run_foreign` does."""

    async def __call__(self, function: Callable[..., Any], *args: Any, timeout_ms: int) -> Any:
        """Run a function in a thread that is abandoned at the deadline."""


class Handles:
    """Ray's handles of the actors that were found or started here, by name."""

    def __init__(self, run_foreign: RunForeign) -> None:
        self._run_foreign = run_foreign
        self._known: dict[str, Any] = {}
        self._look_ups: dict[str, asyncio.Task[Any]] = {}
        """Look-ups in progress: one thread for each name, however many wait for it."""

    def know(self, name: str, handle: Any) -> None:
        """Remember the handle of an actor that was started here."""
        self._known[name] = handle

    def forget(self, name: str) -> None:
        """Forget an actor that is gone; the next one with its name has another handle."""
        self._known.pop(name, None)

    async def of(self, name: str) -> Any:
        """Return the handle of the live actor with that name; raises PeerLost."""
        handle = self._known.get(name)
        if handle is not None:
            return handle
        look_up = self._look_ups.get(name)
        if look_up is None or look_up.done():
            look_up = self._look_ups[name] = asyncio.ensure_future(self._look_up(name))
            look_up.add_done_callback(lambda done: self._looked_up(name, done))
        return await asyncio.shield(look_up)

    async def _look_up(self, name: str) -> Any:
        try:
            return await self._run_foreign(
                ray.get_actor, name, NAMESPACE, timeout_ms=LOOK_UP_TIMEOUT_MS
            )
        except (ValueError, RayError) as failure:
            raise PeerLost(f"Ray knows no live actor {name}") from failure
        except PeerTimeout as late:
            raise PeerLost(f"Ray does not answer whether {name} lives: {late}") from late

    def _looked_up(self, name: str, done: asyncio.Task[Any]) -> None:
        if self._look_ups.get(name) is done:
            del self._look_ups[name]
        if not done.cancelled() and done.exception() is None:
            self._known[name] = done.result()


class Creation:
    """The creation of an actor, which can be undone before it has finished."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._handle: Any = None
        self._unwanted = False

    def run(self) -> Any:
        """Create the actor; return its handle. Blocking."""
        handle = self._create()
        with self._lock:
            self._handle = handle
            unwanted = self._unwanted
        if unwanted:
            end_actor(handle)
        return handle

    def undo(self) -> None:
        """End the actor for good, now or as soon as Ray has created it. Blocking."""
        with self._lock:
            self._unwanted = True
            handle = self._handle
        if handle is not None:
            end_actor(handle)


def actor_names(prefix: str) -> set[str]:
    """Return names with this prefix, of our actors that are not gone for good. Blocking."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return {
        one["name"]
        for one in found
        if one["namespace"] == NAMESPACE and one["name"].startswith(prefix)
    }


def end_named(name: str) -> None:
    """End the actor with a name, as `end_actor` does. It may be gone already. Blocking."""
    for _ in range(END_TRIES):
        if not ray.is_initialized():
            return  # this process has disconnected
        try:
            handle = ray.get_actor(name, NAMESPACE)
        except ValueError:
            return
        except RayError as failure:
            log.warning("Ray does not answer yet whether %s lives: %s", name, failure)
            time.sleep(END_RETRY_S)
        else:
            end_actor(handle)
            return


def end_actor(handle: Any) -> None:
    """End an actor for good, even one whose process does not exist yet. Blocking.

    The request is repeated until Ray accepts it. Otherwise the actor would come up later and serve
    nobody.
    """
    for _ in range(END_TRIES):
        if not ray.is_initialized():
            return  # this process has disconnected
        try:
            ray.kill(handle, no_restart=True)
        except RayError as failure:
            log.warning("Ray has not accepted the end of an actor yet: %s", failure)
            time.sleep(END_RETRY_S)
        else:
            return


def begin_unasked(host: Any, timeout_s: float) -> None:
    """Start a host that nobody calls, as after a restart by Ray.

    Calls fail until Ray considers the new process alive.
    """
    while True:
        try:
            ray.get(host.begin.remote(), timeout=timeout_s)
        except ActorUnavailableError:
            time.sleep(BEGIN_RETRY_S)
        except RayError:
            log.exception("the actor could not start")
            return
        else:
            return
