"""Divides a gateway's file descriptors between maps of segments and connections."""

from __future__ import annotations

import resource
from typing import NamedTuple

from raylog.actors.gateway.maps import MAPS_MAX

RESERVE_MAX = 512
_UNLIMITED = 1 << 31


class DescriptorBudget(NamedTuple):
    """The shares; the rest is for links, logs, cold reads and the runtime."""

    maps: int
    connections: int


def descriptor_budget(open_files: int, *, shared: bool = False) -> DescriptorBudget:
    """Divide a limit on open files, or half of it if logs are open in the same process.

    A connection beyond its share is refused with a log line. Without this limit the operating
    system would silently refuse it, and everything else that needs a descriptor.
    """
    if shared:
        open_files //= 2
    quarter = open_files // 4
    maps = min(MAPS_MAX, quarter)
    return DescriptorBudget(maps, open_files - maps - min(RESERVE_MAX, quarter))


def open_files_max() -> int:
    """Return this process's limit on open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
