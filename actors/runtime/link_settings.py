"""Where links from other machines are accepted, and where these find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raylog.actors.plain import message

ANY_PORT = range(1)
"""Only port 0: the system chooses one."""


@message
@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What settings say about links, for all processes of a broker.

    Hosts may have placeholders, which are filled where a process runs (`actors.node_hosts`).
    """

    bind_host: str | None = None
    """None: the address under which Ray reaches the node."""
    advertised_host: str | None = None
    """None: the same."""
    ports: range = ANY_PORT
    """Each process takes one that is free."""
    external_host_command: str | None = None

    def on_node(self, address: str, fill: Callable[[str], str]) -> LinkPlace:
        """The same for the node at an address, its placeholders filled by `fill`."""
        bind = address if self.bind_host is None else fill(self.bind_host)
        told = address if self.advertised_host is None else fill(self.advertised_host)
        return LinkPlace(bind, told, self.ports)


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """Where one process accepts links."""

    bind_host: str
    advertised_host: str
    """What processes on other machines connect to."""
    ports: range = ANY_PORT
