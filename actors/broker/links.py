"""Reads the settings for links between brokers."""

from __future__ import annotations

import re

from raylog.actors.config import BrokerSettings
from raylog.actors.node_hosts import COMMAND
from raylog.actors.runtime.link_settings import ANY_PORT, LinkSettings
from raylog.wire.errors import InvalidConfig

PORT_RANGE = "link.port.range"
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)
_PORT_MAX = 65_535


def read_links(settings: BrokerSettings) -> LinkSettings:
    """Return where a broker's processes accept links; raises InvalidConfig."""
    return LinkSettings(
        bind_host=settings.raw("link.bind.host"),
        advertised_host=settings.raw("link.advertised.host"),
        ports=_ports(settings.raw(PORT_RANGE)),
        external_host_command=settings.raw(COMMAND),
    )


def _ports(text: str | None) -> range:
    if text is None:
        return ANY_PORT
    found = _RANGE.fullmatch(text)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not 0 < first <= last <= _PORT_MAX:
        raise InvalidConfig(f"{PORT_RANGE} must look like 20000-20099, not {text}")
    return range(first, last + 1)
