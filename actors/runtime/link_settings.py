"""Settings for links from other machines: where to accept them, and the advertised address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raylog.actors.message import message

ANY_PORT = range(1)
"""Only port 0: the system chooses one."""


@message
@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings for links, for all processes of a broker.

    Hosts may have placeholders, which are filled in where a process runs (`actors.node_hosts`).
    """

    bind_host: str | None = None
    """None means the address of the Ray node."""
    advertised_host: str | None = None
    """None means the same."""
    ports: range = ANY_PORT
    """Each process takes a free one."""
    external_host_command: str | None = None

    def on_node(self, address: str, fill: Callable[[str], str]) -> LinkPlace:
        """Resolve the settings for the node with an address; `fill` replaces placeholders."""
        bind = address if self.bind_host is None else fill(self.bind_host)
        advertised = address if self.advertised_host is None else fill(self.advertised_host)
        return LinkPlace(bind, advertised, self.ports)


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """The place where one process accepts links."""

    bind_host: str
    advertised_host: str
    """The host that processes on other machines connect to."""
    ports: range = ANY_PORT
