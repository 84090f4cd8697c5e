"""Read-only maps of segment files: fetched records go from the page cache to the socket.

A slice names an immutable segment (its id is never reused, its file never truncated), so a map
stays valid as long as it is referenced. When a slice extends beyond a map, a longer map is made.
Touching a page that is not in memory would block the event loop, and a disk error there would raise
SIGBUS, so such slices are read with `read_cold` in a thread instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable

MAPS_MAX = 2048
"""Far below the kernel's vm.max_map_count of 65,530 per process."""


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, used to find the address of a read-only map."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_mincore = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


class SegmentMap:
    """One mapped file."""

    __slots__ = ("_address", "size", "view")

    def __init__(self, path: str, needed: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(fd).st_size
            if self.size < needed:
                raise FileNotFoundError(f"{path} has {self.size} bytes, {needed} were announced")
            mapped = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        self.view = memoryview(mapped)
        self._address = _address_of(mapped)

    def is_resident(self, position: int, length: int) -> bool:
        """Whether all pages of a slice are currently in memory."""
        start = position - position % mmap.PAGESIZE
        pages = -(-(position + length - start) // mmap.PAGESIZE)
        states = ctypes.create_string_buffer(pages)
        if _mincore(self._address + start, position + length - start, states) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return states.raw.count(b"\0") == 0


def _address_of(mapped: mmap.mmap) -> int:
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0)
    address = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    assert isinstance(address, int)
    return address


class SegmentMaps:
    """Maps by (directory, segment id); the least recently used is dropped first."""

    def __init__(self, maps_max: int = MAPS_MAX) -> None:
        self._maps_max = maps_max
        self._maps: OrderedDict[tuple[str, str], SegmentMap] = OrderedDict()

    def __len__(self) -> int:
        """The number of mapped files."""
        return len(self._maps)

    def slice(
        self, directory: str, segment_id: str, position: int, length: int
    ) -> memoryview | None:
        """Return a slice of a segment; None if it is not completely in memory.

        Raises FileNotFoundError if the segment was removed; the leader must then be asked again.
        """
        key = (directory, segment_id)
        found = self._maps.get(key)
        if found is None or found.size < position + length:
            found = self._maps[key] = SegmentMap(
                os.path.join(directory, segment_id), position + length
            )
            if len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(key)
        if not found.is_resident(position, length):
            return None
        return found.view[position : position + length]

    def forget(self, directories: Iterable[str]) -> None:
        """Drop the maps of partitions that are no longer served; slices in use stay valid."""
        gone = set(directories)
        for key in [key for key in self._maps if key[0] in gone]:
            del self._maps[key]


def read_cold(directory: str, segment_id: str, position: int, length: int) -> bytes:
    """Read a slice from disk. Blocking; raises OSError, also if the segment was removed."""
    fd = os.open(os.path.join(directory, segment_id), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, position)
    finally:
        os.close(fd)
