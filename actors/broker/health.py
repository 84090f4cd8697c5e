"""HTTP server of a broker (`health.listener`): its health and its metrics.

| path     | answer                                                                            |
|----------|-----------------------------------------------------------------------------------|
| /healthz | 200 while the broker's process and event loop run                                 |
| /readyz  | 200 while the broker serves; otherwise 503 with the `reasons`                     |
| /metrics | the metrics of all its processes, for Prometheus                                  |

The first two use what the broker already knows and call no other process.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raylog.actors.broker.child_processes import ChildProcesses
from raylog.actors.broker.messages import BrokerHealth
from raylog.actors.broker.rules.machine import BrokerMachine
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


class Standing(NamedTuple):
    """The broker's view of its own state."""

    broker_id: int
    state: str
    """As in BrokerStatus."""
    refusal: str = ""
    """Why the cluster refuses the broker; empty if it does not."""
    gateways: int = 0
    """Running gateways."""
    partitions: int = 0
    offline: int = 0
    """Partitions that could not be opened, or whose disk failed."""
    silent_ms: float = 0
    """How long no controller has answered, in ms."""


def standing_of(
    state: str,
    refusal: str,
    machine: BrokerMachine,
    children: ChildProcesses,
    succession: Succession,
) -> Standing:
    """Collect a broker's standing, in time independent of the number of partitions."""
    gateways = [one for one in children.describe() if (one.role, one.state) == (GATEWAY, "running")]
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
    """List why a broker does not serve; empty if it does.

    After `session_ms` of silence the controller considers a broker lost and fences it.
    """
    found = []
    if standing.refusal:
        found.append(f"the cluster refuses the broker: {standing.refusal}")
    if standing.state != "running":
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
    """Return host and port of the setting, or None if it is not set; raises InvalidConfig."""
    text = settings.raw(SETTING)
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise InvalidConfig(f"{SETTING} must look like host:port, not {text}")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Ports(Protocol):
    """The ports that a broker had before, from its directory (`DataDirectory`)."""

    @property
    def ports(self) -> Mapping[str, int]:
        """Port by listener."""

    def remember_port(self, listener: str, port: int) -> None:
        """Record where it listens now."""


class HealthListener:
    """Serves a broker's health and metrics over HTTP."""

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
        self._endpoint = ""
        """The host:port on which it listens."""

    async def open(self, remembered: Ports) -> None:
        """Listen if the setting is set; raises InvalidConfig if the port is taken.

        For port 0 it prefers the previous port if that is free, because Prometheus scrapes it.
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
        self._endpoint = Endpoint("", host, bound).address
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
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def now(self) -> BrokerHealth:
        """Return the broker's health."""
        standing = self._standing()
        return BrokerHealth(
            broker_id=standing.broker_id,
            state=standing.state,
            reasons=tuple(reasons(standing, self._session_ms)),
            partitions=standing.partitions,
            offline_partitions=standing.offline,
            listener=self._endpoint,
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
        exposed = await self._runtime.run_blocking(exposition, samples, accept)
        return HttpAnswer(HTTPStatus.OK, exposed.body, exposed.content_type)

    @property
    def bound(self) -> dict[str, str]:
        """Return the setting with the bound port; empty if the server does not run."""
        return {SETTING: self._endpoint} if self._endpoint else {}

    @property
    def address(self) -> str:
        """Return the server's host:port, or "" if it does not run."""
        return self._endpoint
