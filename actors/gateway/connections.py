"""A gateway's client connections: how many there may be, and how long they may be silent.

Each gateway process counts its own: with `gateway.actors` above 1 a broker may have that many
times `max.connections` and `max.connections.per.ip`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from raylog.actors.config import BrokerConfigs
from raylog.actors.gateway.connection import ClientConnection
from raylog.actors.runtime.base import Runtime, Timer

log = logging.getLogger(__name__)
LOOKS = 8
"""How often a connection is looked at within the time it may be silent."""
LOOK_MS = (50, 30_000)
"""Least and most time between two looks."""


class _Seen(NamedTuple):
    activity: tuple[int, ...]
    since_ms: float
    """When it was first seen so."""


class Connections:
    """The open connections.

    Silence is noticed by one timer that looks at all of them, not by anything done per request: a
    connection is closed between `connections.max.idle.ms` and an eighth (at most 30 s) later. A
    client that waits for an answer is not silent.
    """

    def __init__(
        self, runtime: Runtime, configs: Callable[[], BrokerConfigs], files_max: int
    ) -> None:
        self._runtime = runtime
        self._configs = configs
        self._files_max = files_max
        idle_ms = configs().settings.number("connections.max.idle.ms")
        self._idle_ms = idle_ms if idle_ms >= 0 else None
        self._seen: dict[ClientConnection, _Seen] = {}
        self._by_host: Counter[str] = Counter()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(tuple(self._seen))

    def admit(self, connection: ClientConnection) -> bool:
        """Whether a new connection may stay."""
        refusal = self._refusal(connection.host)
        if refusal is not None:
            log.warning("refusing %s: %s", connection.peer, refusal)
            return False
        self._seen[connection] = _Seen(connection.activity, self._runtime.monotonic_ms())
        self._by_host[connection.host] += 1
        if self._timer is None:
            self._look_later()
        return True

    def remove(self, connection: ClientConnection) -> None:
        """Forget a connection; one that was refused is not known."""
        if self._seen.pop(connection, None) is None:
            return
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        if not self._seen and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refusal(self, host: str) -> str | None:
        configs = self._configs()
        connections_max = min(int(configs.effective("max.connections") or 0), self._files_max)
        if len(self._seen) >= connections_max:
            return (
                f"{len(self._seen)} connections are open, more are not allowed by "
                "max.connections and the limit of open files (ulimit -n)"
            )
        host_max = int(configs.effective("max.connections.per.ip") or 0)
        if self._by_host[host] >= host_max:
            return f"it has {self._by_host[host]} connections (max.connections.per.ip)"
        return None

    # ---- silence -------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._idle_ms is None:
            return
        least, most = LOOK_MS
        pause_ms = min(max(self._idle_ms / LOOKS, least), most)
        self._timer = self._runtime.call_later(pause_ms, self._look)

    def _look(self) -> None:
        assert self._idle_ms is not None
        now_ms = self._runtime.monotonic_ms()
        for connection, seen in tuple(self._seen.items()):
            activity = connection.activity
            if activity != seen.activity or connection.waits_for_answer:
                self._seen[connection] = _Seen(activity, now_ms)
            elif now_ms - seen.since_ms >= self._idle_ms:
                connection.give_up(
                    f"nothing was sent for {self._idle_ms} ms (connections.max.idle.ms)"
                )
        self._look_later()
