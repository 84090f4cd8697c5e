"""Where a broker is reached: a host and a port for each of its listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raylog.actors.plain import message

DEFAULT_LISTENER = "PLAINTEXT"
"""The name of the only listener that older builds had."""


@message
class Endpoint(NamedTuple):
    """A listener's name, host and port; an empty host is every interface, port 0 a free one."""

    listener: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT as in bootstrap.servers, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        """As the settings `listeners` and `advertised.listeners` have it."""
        return f"{self.listener}://{self.address}"


UNKNOWN = Endpoint(DEFAULT_LISTENER, "", 0)
"""Of a broker that has not registered since the metadata was rebuilt."""

Endpoints = tuple[tuple[str, str, int], ...]
"""Endpoints as they are stored and sent: (listener, host, port) of each."""


def endpoint_of(endpoints: Iterable[Endpoint], listener: str) -> Endpoint | None:
    """The endpoint of a listener; None if there is none of that name."""
    return next((one for one in endpoints if one.listener == listener), None)


def known_endpoints(endpoints: Endpoints, host: str, port: int) -> tuple[Endpoint, ...]:
    """The endpoints of a registration; one of an older build has only a host and a port."""
    if endpoints:
        return tuple(Endpoint(*one) for one in endpoints)
    return (Endpoint(DEFAULT_LISTENER, host, port),) if host else ()
