"""What a broker tells over HTTP (`health.listener`): whether it serves, and its metrics.

| path     | answer                                                                            |
|----------|-----------------------------------------------------------------------------------|
| /healthz | 200 while the broker's process runs and its event loop turns                      |
| /readyz  | 200 while the broker serves; else 503, and `reasons` says what is missing         |
| /metrics | what all its processes have counted, for Prometheus                               |

The first two are made of what the broker knows already: nobody else is asked.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raylog.actors.broker.api import BrokerHealth
from raylog.actors.broker.family import Family
from raylog.actors.broker.machine import BrokerMachine
from raylog.actors.broker.succession import Succession
from raylog.actors.config import BrokerSettings
from raylog.actors.endpoints import Endpoint
from raylog.actors.metrics.samples import Sample
from raylog.actors.names import GATEWAY
from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import InvalidConfig, KafkaError

if TYPE_CHECKING:
    from raylog.actors.runtime.http import HttpAnswer, HttpServer

SETTING = "health.listener"
_RUNNING = "running"


class Standing(NamedTuple):
    """What a broker knows of itself."""

    broker_id: int
    state: str
    """As in BrokerStatus."""
    refusal: str = ""
    """Why the cluster does not take it; empty: it does."""
    gateways: int = 0
    """How many run."""
    partitions: int = 0
    offline: int = 0
    """Of the partitions: could not be opened, or their disk failed."""
    silent_ms: float = 0
    """For how long no controller has answered."""


def standing_of(
    state: str, refusal: str, machine: BrokerMachine, family: Family, succession: Succession
) -> Standing:
    """A broker's standing, from its parts; nothing here grows with the partitions."""
    gateways = [one for one in family.describe() if (one.role, one.state) == (GATEWAY, "running")]
    return Standing(
        machine.broker_id,
        state,
        refusal,
        len(gateways),
        len(machine.partitions),
        len(machine.offline),
        succession.silent_ms,
    )


def reasons(standing: Standing, session_ms: float) -> list[str]:
    """Why a broker does not serve; none if it does.

    A controller takes a broker for lost, and fences it, after `session_ms` of silence.
    """
    found = []
    if standing.refusal:
        found.append(f"the cluster does not take the broker: {standing.refusal}")
    if standing.state != _RUNNING:
        found.append(f"expected is a broker that is running, this one is {standing.state}")
    if not standing.gateways:
        found.append("no gateway is running: clients cannot connect")
    if standing.partitions and standing.offline == standing.partitions:
        found.append(f"the log directory is offline: all {standing.partitions:,} partitions failed")
    if standing.silent_ms >= session_ms:
        found.append(
            f"no controller has answered for {standing.silent_ms:,.0f} ms, the session timeout is "
            f"{session_ms:,.0f} ms"
        )
    return found


def address_of(settings: BrokerSettings) -> tuple[str, int] | None:
    """Host and port of the setting; None if it is not set. Raises InvalidConfig."""
    text = settings.raw(SETTING)
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise InvalidConfig(f"{SETTING} must look like host:port, not {text}")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Ports(Protocol):
    """The ports that a broker has had, as its directory remembers them (`DataDirectory`)."""

    @property
    def ports(self) -> Mapping[str, int]:
        """By listener."""

    def remember_port(self, listener: str, port: int) -> None:
        """Note where it listens now."""


class HealthListener:
    """A broker's health, and the port where it is told."""

    def __init__(
        self,
        runtime: Runtime,
        settings: BrokerSettings,
        standing: Callable[[], Standing],
        scrape: Callable[[], Awaitable[list[Sample]]],
    ) -> None:
        self._runtime = runtime
        self._scrape = scrape
        self._address = address_of(settings)
        self._session_ms = settings.number("broker.session.timeout.ms")
        self._standing = standing
        self._server: HttpServer | None = None
        self._told = ""
        """host:port where it is told."""

    async def open(self, remembered: Ports) -> None:
        """Listen, where that is wanted; raises InvalidConfig if the port is taken.

        Where any port will do it is the one of last time, if that is free: Prometheus looks there.
        """
        if self._address is None:
            return
        from raylog.actors.runtime.http import HttpServer  # an embedded broker need not load it

        host, port = self._address
        self._server = HttpServer(
            {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        )
        try:
            bound = await self._listen(self._server, host, port or remembered.ports.get(SETTING, 0))
        except OSError as taken:
            raise InvalidConfig(
                f"cannot listen on {SETTING} {host}:{port}: {taken.strerror}"
            ) from taken
        self._told = Endpoint("", host, bound).address
        remembered.remember_port(SETTING, bound)

    async def _listen(self, server: HttpServer, host: str, port: int) -> int:
        try:
            return await server.listen(host, port)
        except OSError as taken:
            assert self._address is not None
            if self._address[1] or taken.errno != errno.EADDRINUSE:
                raise
            return await server.listen(host, 0)

    def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()

    def now(self) -> BrokerHealth:
        """How the broker stands."""
        standing = self._standing()
        return BrokerHealth(
            broker_id=standing.broker_id,
            state=standing.state,
            reasons=tuple(reasons(standing, self._session_ms)),
            partitions=standing.partitions,
            offline_partitions=standing.offline,
            listener=self._told,
        )

    def _healthz(self, _: str) -> HttpAnswer:
        from raylog.actors.runtime.http import document

        return document(HTTPStatus.OK, {"broker": self._standing().broker_id, "alive": True})

    def _readyz(self, _: str) -> HttpAnswer:
        from raylog.actors.runtime.http import document

        health = self.now()
        status = HTTPStatus.SERVICE_UNAVAILABLE if health.reasons else HTTPStatus.OK
        return document(status, health.document())

    async def _metrics(self, accept: str) -> HttpAnswer:
        from raylog.actors.metrics.exposition import exposition
        from raylog.actors.runtime.http import HttpAnswer, refusal

        try:
            samples = await self._scrape()
        except KafkaError as early:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(early))
        told = await self._runtime.run_blocking(exposition, samples, accept)
        return HttpAnswer(HTTPStatus.OK, told.body, told.content_type)

    @property
    def bound(self) -> dict[str, str]:
        """The setting with the port that is bound; empty where nothing listens."""
        return {SETTING: self._told} if self._told else {}

    @property
    def address(self) -> str:
        """host:port where it is told; "" where it is not."""
        return self._told
