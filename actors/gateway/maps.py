"""Read-only maps of segment files: fetched records go from the page cache to the socket.

A slice names an immutable segment (its id is never reused, its file never cut), so a map stays
right for as long as somebody holds it; a longer one is made when a slice reaches past its end.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict

MAPS_MAX = 2048
"""Well below the kernel's vm.max_map_count of 65,530 a process."""


class SegmentMaps:
    """Maps by (directory, segment id), the least recently used dropped first."""

    def __init__(self, maps_max: int = MAPS_MAX) -> None:
        self._maps_max = maps_max
        self._views: OrderedDict[tuple[str, str], memoryview] = OrderedDict()

    def slice(self, directory: str, segment_id: str, position: int, length: int) -> memoryview:
        """The bytes at `position` of a segment.

        Raises FileNotFoundError when the segment is gone: ask the leader again.
        """
        key = (directory, segment_id)
        view = self._views.get(key)
        if view is None or len(view) < position + length:
            view = self._views[key] = _map(os.path.join(directory, segment_id), position + length)
            if len(self._views) > self._maps_max:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return view[position : position + length]

    def forget(self, directory: str) -> None:
        """Drop the maps of a partition that is no longer served; readers keep what they hold."""
        for key in [key for key in self._views if key[0] == directory]:
            del self._views[key]


def _map(path: str, needed: int) -> memoryview:
    """Map the whole file. The owner extends it ahead, so that maps are seldom renewed."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < needed:
            raise FileNotFoundError(f"{path} has {size} bytes, {needed} were announced")
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)
