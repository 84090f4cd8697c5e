"""Checks a data directory and its volume, for `raylog doctor`."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raylog.cli.doctor.findings import Finding, failure, ok, unknown, warning
from raylog.cli.output import human_bytes

_MIB = 1024 * 1024
FREE_BYTES_MIN = 1024 * _MIB
FREE_SHARE_MIN = 0.10
INODES_MIN = 10_000
INODES_SHARE_MIN = 0.05
FSYNC_SLOW_MS, FSYNC_TOO_SLOW_MS = 20.0, 200.0
_SYNCS = 20
_SYNC_BYTES = 4096
_SYNCING_S_MAX = 3.0
_IN_MEMORY = ("tmpfs", "ramfs")
_OVER_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "fuse")
_OF_CONTAINER = ("overlay", "aufs", "overlayfs")
_SHORTEN = "free space, or choose another directory with --data"


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """Facts about a data directory, or where it would be created. -1: unknown."""

    directory: str
    exists: bool
    place: str
    """The directory itself, or its nearest parent that exists."""
    is_directory: bool = True
    is_writable: bool = True
    owner: int = -1
    """User id."""
    user: int = -1
    """User id of this process."""
    foreign: tuple[str, ...] = ()
    """Brokers' directories in it that belong to another user."""
    file_system: str = ""
    mount_point: str = ""
    total_bytes: int = -1
    free_bytes: int = -1
    total_inodes: int = -1
    """0: the file system has no limit."""
    free_inodes: int = -1
    fsync_ms: tuple[float, ...] = ()
    """Times to write 4 KiB and sync them to disk."""
    fsync_failure: str = ""


def gather(directory: Path) -> VolumeFacts:
    """Gather facts about a data directory. The file that measures fsync is removed."""
    directory = directory.absolute()
    place = next(one for one in (directory, *directory.parents) if one.exists())
    is_directory = place.is_dir()
    writable = is_directory and os.access(place, os.W_OK | os.X_OK)
    space, status = os.statvfs(place), place.stat()
    mount_point, file_system = mount_of(place.resolve(), _mounts())
    fsync_ms, fsync_failure = _measured(place) if writable else ((), "")
    return VolumeFacts(
        str(directory),
        directory.exists(),
        str(place),
        is_directory,
        writable,
        status.st_uid,
        os.geteuid(),
        tuple(_foreign(directory)),
        file_system,
        mount_point,
        space.f_blocks * space.f_frsize,
        space.f_bavail * space.f_frsize,
        space.f_files,
        space.f_favail,
        fsync_ms,
        fsync_failure,
    )


def check(facts: VolumeFacts) -> list[Finding]:
    """Check a data directory."""
    if not facts.is_directory:
        return [
            failure("data directory", f"{facts.place} is a file", "choose another one with --data")
        ]
    return [_access(facts), _kind(facts), _space(facts), _inodes(facts), _fsync(facts)]


def _access(facts: VolumeFacts) -> Finding:
    name, where = "data directory", facts.directory
    if facts.foreign:
        return failure(
            name,
            f"{', '.join(facts.foreign)}: owned by another user than this one ({facts.user})",
            f"run brokers as the user that owns them, or: chown -R {facts.user} {where}",
        )
    if not facts.is_writable:
        return failure(
            name,
            f"user {facts.user} cannot write to {facts.place}; user {facts.owner} owns it",
            f"chown {facts.user} {facts.place}, or choose another directory with --data",
        )
    if facts.exists and facts.owner != facts.user:
        return warning(
            name,
            f"{where} is owned by user {facts.owner}, and this is user {facts.user}",
            "always run brokers as the same user",
        )
    return ok(name, where if facts.exists else f"{where} will be created in {facts.place}")


def _kind(facts: VolumeFacts) -> Finding:
    name, kind = "file system", facts.file_system
    found = f"{kind} on {facts.mount_point}"
    if not kind:
        return unknown(name, "the system does not report it")
    if kind in _IN_MEMORY:
        return warning(
            name,
            f"{found}: records are in memory, and are lost when the machine restarts",
            "choose a directory on a disk with --data, unless this is a test",
        )
    if kind in _OVER_NETWORK or kind.startswith("fuse."):
        return warning(
            name,
            f"{found}: a network or user-space file system; if it hangs, the broker hangs",
            "choose a directory on a local disk with --data",
        )
    if kind in _OF_CONTAINER:
        return warning(
            name,
            f"{found}: a container's layer, which is lost with the container",
            "mount a volume for the data directory",
        )
    return ok(name, found)


def _space(facts: VolumeFacts) -> Finding:
    name = "disk space"
    if facts.total_bytes <= 0 or facts.free_bytes < 0:
        return unknown(name, "the volume does not report it")
    share = facts.free_bytes / facts.total_bytes
    free, total = human_bytes(facts.free_bytes), human_bytes(facts.total_bytes)
    found = f"{free} of {total} are free ({share:.0%})"
    if facts.free_bytes < FREE_BYTES_MIN:
        return failure(name, found, _SHORTEN)
    if share < FREE_SHARE_MIN:
        return warning(name, found, f"{_SHORTEN}; or shorten retention.ms of topics")
    return ok(name, found)


def _inodes(facts: VolumeFacts) -> Finding:
    name = "inodes"
    if facts.total_inodes < 0 or facts.free_inodes < 0:
        return unknown(name, "the volume does not report it")
    if facts.total_inodes == 0:
        return ok(name, "the file system has no limit")
    share = facts.free_inodes / facts.total_inodes
    found = f"{facts.free_inodes:,} of {facts.total_inodes:,} are free ({share:.0%})"
    do = "remove small files there (df -i); each segment of a partition takes three"
    if facts.free_inodes < INODES_MIN:
        return failure(name, found, do)
    return warning(name, found, do) if share < INODES_SHARE_MIN else ok(name, found)


def _fsync(facts: VolumeFacts) -> Finding:
    name = "fsync"
    if facts.fsync_failure:
        return failure(
            name,
            f"writing to {facts.place} fails: {facts.fsync_failure}",
            "see the system log (dmesg)",
        )
    if not facts.fsync_ms:
        return unknown(name, f"{facts.place} cannot be written to")
    median = statistics.median(facts.fsync_ms)
    found = (
        f"4 KiB are on disk after {median:.1f} ms (median of {len(facts.fsync_ms)}, "
        f"longest {max(facts.fsync_ms):.1f} ms)"
    )
    do = "use a dedicated disk, an SSD; each change of the metadata waits for two fsyncs"
    if median > FSYNC_TOO_SLOW_MS:
        return failure(name, found, do)
    return warning(name, found, do) if median > FSYNC_SLOW_MS else ok(name, found)


# ---- gathering -------------------------------------------------------------------------------


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text()
    except OSError:
        return ""


def mount_of(path: Path, mounts: str) -> tuple[str, str]:
    """Return mount point and type of a path's file system; `mounts` is from /proc/self/mounts.

    The longest mount point that contains the path wins, and of equal ones the last. "" if unknown.
    """
    best = ("", "")
    for line in mounts.splitlines():
        _, point, kind, *_ = [*line.split(" "), "", "", ""]
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
        if point and path.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best


def _foreign(directory: Path) -> Iterator[str]:
    """Yield brokers' directories of another user, except those that cannot be accessed."""
    user = os.geteuid()
    for one in sorted(directory.glob("broker-*")):
        with contextlib.suppress(OSError):
            if one.stat().st_uid != user:
                yield str(one)


def _measured(place: Path) -> tuple[tuple[float, ...], str]:
    """Return times of small synced writes in ms, measured for a few seconds, or the error."""
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            return tuple(_syncs(file.fileno())), ""
    except OSError as failed:
        return (), str(failed.strerror or failed)


def _syncs(descriptor: int) -> Iterable[float]:
    ends_s = time.monotonic() + _SYNCING_S_MAX
    for _ in range(_SYNCS):
        began_s = time.monotonic()
        os.write(descriptor, b"\0" * _SYNC_BYTES)
        os.fdatasync(descriptor)
        ended_s = time.monotonic()
        yield (ended_s - began_s) * 1_000
        if ended_s > ends_s:
            return
