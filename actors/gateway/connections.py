"""A gateway's client connections: limits on their number, rate and idle time.

Each gateway process counts its own connections, so with N gateways (`gateway.actors`) a broker may
have N times `max.connections`, `max.connections.per.ip` and `max.connection.creation.rate`. A
listener may have its own limits, within those for all listeners.
"""

from __future__ import annotations

import logging
import math
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raylog.actors.config import BROKER_KEYS, BrokerConfigs
from raylog.actors.config import PER_IP_OVERRIDES as OVERRIDES_KEY
from raylog.actors.config.network_keys import of_listener
from raylog.actors.config.values import host_counts
from raylog.actors.gateway.connection import ClientConnection
from raylog.actors.gateway.memory import RequestMemory
from raylog.actors.runtime.base import Runtime, Timer

log = logging.getLogger(__name__)
MAX_CONNECTIONS = "max.connections"
CREATION_RATE = "max.connection.creation.rate"
LOOKS = 8
"""How often a connection is checked within its maximum idle time."""
LOOK_MS = (50, 10_000)
"""Shortest and longest time between two checks."""
PART_MS = 60_000
"""Time limit for the rest of a request, unless it arrives fast enough."""
PART_BYTES_A_MS = 4
"""About 4 KiB/s in each PART_MS. An earlier fast period does not allow a later pause."""
FINISHING_MS = 10_000
FINISHING_BYTES_A_MS = 64
"""The same for the only connection that may read while there is no memory: all others wait."""
SELDOM_READS = 64
"""A connection with fewer reads since the last check releases its receive buffer."""
LOOKED_AT_ONCE = 500
"""Maximum connections checked in one turn, which takes some ms."""
CUT_OFF_AT_ONCE = 250
"""Maximum connections closed in one turn, as thousands may become idle together."""
ENDING_MS = 60_000
"""How long a connection may stay without progress after the client has closed its side, or while it
is being closed: its last responses are late, or are not read."""


@dataclass(slots=True)
class _Seen:
    """A connection's activity and state at the last check."""

    activity: tuple[int, int]
    since_ms: float
    requests: int
    """Requests taken when its incomplete request was first seen."""
    part_since_ms: float
    part_bytes: int = 0
    """Bytes of the incomplete request received at that time."""


class Pace:
    """A rate limit per second, with a burst of one second's worth."""

    def __init__(self, now_ms: float) -> None:
        self._allowed = math.inf
        self._at_ms = now_ms

    def wait_ms(self, rate: int, now_ms: float) -> float:
        """Return how long the next one must wait at this rate, in ms; 0 if it need not."""
        gained = (now_ms - self._at_ms) * rate / 1000
        self._allowed, self._at_ms = min(self._allowed + gained, rate), now_ms
        return 0.0 if self._allowed >= 1 else (1 - self._allowed) * 1000 / rate

    def take(self) -> None:
        """Count one more."""
        self._allowed -= 1


class Connections:
    """The open connections.

    One timer checks all of them for idleness, so that nothing is done per request. A connection is
    closed between `connections.max.idle.ms` and an eighth of that (at most 10 s) later. A client
    that waits for a response is not idle. A client may not pause within a request either, because
    that takes memory for which others may wait. Such connections are aborted, since unread
    responses would keep them open.
    """

    def __init__(
        self,
        runtime: Runtime,
        configs: Callable[[], BrokerConfigs],
        files_max: int,
        memory: RequestMemory,
    ) -> None:
        self._runtime = runtime
        self._configs = configs
        self._files_max = files_max
        self._memory = memory
        idle_ms = configs().settings.number("connections.max.idle.ms")
        self._idle_ms = idle_ms if idle_ms >= 0 else None
        self._seen: dict[ClientConnection, _Seen] = {}
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._coming: Counter[str] = Counter()
        """Accepted connections that have no protocol yet, by listener."""
        self._overrides = HostLimits(runtime)
        self._timer: Timer | None = None
        self._on_room: dict[str, Callable[[], None]] = {}
        """Callbacks of listeners that wait for room."""
        self._paces: dict[str, Pace] = {}
        """By listener; the key "" is for all listeners together."""

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(tuple(self._seen))

    def by_listener(self) -> Counter[str]:
        """Return the number of connections of each listener that had one."""
        return self._by_listener

    def admit(self, connection: ClientConnection) -> bool:
        """Decide whether an accepted connection may stay."""
        refusal = self._refusal(connection.host)
        if refusal is not None:
            log.warning("refusing %s: %s", connection.peer, refusal)
            return False
        now_ms = self._runtime.monotonic_ms()
        self._seen[connection] = _Seen(connection.activity, now_ms, connection.requests, now_ms)
        self._by_host[connection.host] += 1
        self._by_listener[connection.listener] += 1
        if self._timer is None:
            self._look_later()
        return True

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection, if it was admitted."""
        if self._seen.pop(connection, None) is None:
            return
        self._by_listener[connection.listener] -= 1
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        if not self._seen and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._on_room = self._on_room, {}
        for on_room in waiting.values():
            on_room()

    # ---- how many ------------------------------------------------------------------------

    def has_room(self, listener: str, on_room: Callable[[], None]) -> bool:
        """Whether a listener may accept one more connection.

        If not, `on_room` is called when a connection ends.
        """
        limit = self._full(listener)
        if limit is None:
            return True
        if listener not in self._on_room:
            log.warning(
                "%d connections are open, more are not accepted on listener %s (%s)",
                len(self._seen),
                listener,
                limit,
            )
        self._on_room[listener] = on_room
        return False

    def _full(self, listener: str) -> str | None:
        """Return the limit that is reached; None if there is room."""
        configs = self._configs()
        most = min(int(configs.effective(MAX_CONNECTIONS) or 0), self._files_max)
        if len(self._seen) + self._coming.total() >= most:
            return f"{MAX_CONNECTIONS}, and the limit of open files, ulimit -n"
        own = configs.listener_limit(listener, MAX_CONNECTIONS)
        if own is not None and self._by_listener[listener] + self._coming[listener] >= own:
            return of_listener(listener, MAX_CONNECTIONS)
        return None

    def wait_ms(self, listener: str) -> float:
        """Return how long a listener must wait before it may accept, in ms; 0 if it need not."""
        configs, now_ms = self._configs(), self._runtime.monotonic_ms()
        rates = {
            "": int(configs.effective(CREATION_RATE) or 1),
            listener: configs.listener_limit(listener, CREATION_RATE),
        }
        return max(
            self._pace(name, now_ms).wait_ms(rate, now_ms)
            for name, rate in rates.items()
            if rate is not None
        )

    def _pace(self, name: str, now_ms: float) -> Pace:
        return self._paces.setdefault(name, Pace(now_ms))

    def comes(self, listener: str) -> None:
        """Count a connection that was accepted; `has_come` follows."""
        self._coming[listener] += 1
        for name in ("", listener):
            self._pace(name, self._runtime.monotonic_ms()).take()

    def has_come(self, listener: str) -> None:
        """Record that an accepted connection has its protocol, or is already gone."""
        self._coming[listener] -= 1

    def _refusal(self, host: str) -> str | None:
        configs = self._configs()
        most = self._overrides.of(host, configs.effective(OVERRIDES_KEY) or "")
        if most is None:
            most = configs.connections_per_ip()
        if self._by_host[host] >= most:
            return f"it has {self._by_host[host]} connections (max.connections.per.ip)"
        return None

    # ---- silence -------------------------------------------------------------------------

    def _look_later(self, *, soon: bool = False) -> None:
        least, most = LOOK_MS
        pause_ms = most if self._idle_ms is None else min(max(self._idle_ms / LOOKS, least), most)
        pause_ms = least if soon else pause_ms
        self._timer = self._runtime.call_later(pause_ms, self._look)

    def _look(self) -> None:
        self._look_at(list(self._seen)[::-1])

    def _look_at(self, ahead: list[ClientConnection]) -> None:
        """Check some of these connections, starting at the end, and the others in later turns."""
        now_ms = self._runtime.monotonic_ms()
        left = CUT_OFF_AT_ONCE
        for _ in range(min(LOOKED_AT_ONCE, len(ahead))):
            connection = ahead.pop()
            seen = self._seen.get(connection)
            if seen is None:
                continue  # closed in the meantime
            why = self._rests(connection, seen, now_ms) or self._is_silent(connection, seen, now_ms)
            if why is not None:
                connection.cut_off(why)
                left -= 1
                if not left:
                    break
        if ahead and left:
            self._timer = self._runtime.call_later(0, lambda: self._look_at(ahead))
        else:
            self._look_later(soon=not left)

    def _is_silent(self, connection: ClientConnection, seen: _Seen, now_ms: float) -> str | None:
        activity = connection.activity
        silent_ms = now_ms - seen.since_ms
        if activity != seen.activity or connection.waits_for_answer:
            if activity[0] - seen.activity[0] < SELDOM_READS:
                connection.rests()
            seen.activity, seen.since_ms = activity, now_ms
            return None
        connection.rests()
        if self._idle_ms is not None and silent_ms >= self._idle_ms:
            return f"nothing was sent for {self._idle_ms} ms (connections.max.idle.ms)"
        if connection.is_ending and silent_ms >= ENDING_MS:
            return f"it has not come to its end for {ENDING_MS} ms"
        if self._memory.is_full and connection.unsent_bytes and silent_ms >= PART_MS:
            return f"it has not read its answers for {PART_MS} ms, and there is no memory for more"
        return None

    def _rests(self, connection: ClientConnection, seen: _Seen, now_ms: float) -> str | None:
        """Say why a connection takes too long for the rest of a request; None if it does not."""
        finishing = self._memory.is_finishing(connection)
        if (
            not connection.has_part
            or connection.requests != seen.requests
            or (connection.is_paused and not finishing)
        ):
            seen.requests = connection.requests
            seen.part_since_ms, seen.part_bytes = now_ms, connection.part_bytes
            return None
        grace_ms, bytes_a_ms = PART_MS, PART_BYTES_A_MS
        if finishing:
            grace_ms, bytes_a_ms = FINISHING_MS, FINISHING_BYTES_A_MS
        took_ms = now_ms - seen.part_since_ms
        came = connection.part_bytes - seen.part_bytes
        if took_ms < grace_ms:
            return None
        if came >= grace_ms * bytes_a_ms:
            seen.part_since_ms, seen.part_bytes = now_ms, connection.part_bytes
            return None
        return f"{came} bytes of a request came in {took_ms:.0f} ms, no more"


class HostLimits:
    """Limits for single hosts. Names are resolved once, in a thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._text = ""
        self._limits: dict[str, int] = {}

    def of(self, host: str, text: str) -> int | None:
        """Return the limit for an address in the setting's text; None if it has none."""
        if text != self._text:
            self._text = text
            self._limits = host_counts(BROKER_KEYS[OVERRIDES_KEY], text)
            self._runtime.start(self._look_up(text), OVERRIDES_KEY)
        return self._limits.get(host)

    async def _look_up(self, text: str) -> None:
        found = await self._runtime.run_blocking(_addresses, dict(self._limits))
        if text == self._text:
            self._limits = found


def _addresses(limits: dict[str, int]) -> dict[str, int]:
    """Return the limits by address. A host that cannot be resolved is logged and skipped."""
    found: dict[str, int] = {}
    for host, limit in limits.items():
        try:
            known = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as failure:
            log.warning("%s: %s is not known: %s", OVERRIDES_KEY, host, failure)
        else:
            found.update({str(where[4][0]): limit for where in known})
    return found
