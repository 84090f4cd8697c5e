"""Endpoints of brokers: a host and a port for each listener."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raylog.actors.message import message

DEFAULT_LISTENER = "PLAINTEXT"
"""The only listener of older builds."""


@message
class Endpoint(NamedTuple):
    """A listener's name, host and port. An empty host means all interfaces, port 0 a free one."""

    listener: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT as in bootstrap.servers, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return it as in the settings `listeners` and `advertised.listeners`."""
        return f"{self.listener}://{self.address}"


UNKNOWN = Endpoint(DEFAULT_LISTENER, "", 0)
"""The endpoint of a broker that has not registered since the metadata was rebuilt."""

Endpoints = tuple[tuple[str, str, int], ...]
"""Endpoints as stored and sent: (listener, host, port) of each."""


def endpoint_of(endpoints: Iterable[Endpoint], listener: str) -> Endpoint | None:
    """Return the endpoint of a listener, or None if there is none of that name."""
    return next((one for one in endpoints if one.listener == listener), None)


def known_endpoints(endpoints: Endpoints, host: str, port: int) -> tuple[Endpoint, ...]:
    """Return the endpoints of a registration; those of older builds have only a host and a port."""
    if endpoints:
        return tuple(Endpoint(*one) for one in endpoints)
    return (Endpoint(DEFAULT_LISTENER, host, port),) if host else ()
