"""How a gateway divides the files it may have open between maps of segments and connections."""

from __future__ import annotations

import resource
from typing import NamedTuple

from raylog.actors.gateway.maps import MAPS_MAX

RESERVE_MAX = 512
_UNLIMITED = 1 << 31


class DescriptorBudget(NamedTuple):
    """How many of each; what is left is for links, logs, cold reads and the runtime."""

    maps: int
    connections: int


def descriptor_budget(open_files: int, *, shared: bool = False) -> DescriptorBudget:
    """The shares of a limit of open files; half of it if logs are open in the same process.

    A connection beyond its share is refused and said so; without a limit of ours the system would
    refuse it, and everything else that needs a descriptor, silently.
    """
    if shared:
        open_files //= 2
    quarter = open_files // 4
    maps = min(MAPS_MAX, quarter)
    return DescriptorBudget(maps, open_files - maps - min(RESERVE_MAX, quarter))


def open_files_max() -> int:
    """The limit of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
