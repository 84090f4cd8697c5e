"""Keeps the files `partition.json` of this process's open partitions up to date.

A file is compared when its log is opened, in the thread that opens it, and then whenever the
topic's own settings change. A thread then writes only the files of that topic, one after another. A
file that cannot be written is retried while its partition is open.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from raylog.actors.common_messages import OpenPartition, PartitionKey
from raylog.actors.replica.rules.work import LogWork, Task
from raylog.actors.runtime.base import Runtime
from raylog.storage.disk import Disk, opened
from raylog.storage.layout import LOG_SUFFIX, PARTITION_FILE, holds_log
from raylog.storage.partition_file import (
    PartitionFile,
    PartitionFileDamaged,
    TopicNote,
    read_partition_file,
    write_partition_file,
)
from raylog.wire.errors import KafkaStorageError

log = logging.getLogger(__name__)
WRITES_AT_ONCE = 10
"""Files written in one call, before checking again what else changed or was closed."""
RETRY_MS = 5_000
RETRY_MS_MAX = 60_000
_TASK = Task.PARTITION_FILE
_BATCH_HEAD = 12
"""Size of base offset and length, with which a batch begins."""


class Checked(NamedTuple):
    """A partition's directory before its log is opened."""

    wanted: PartitionFile
    """What the file should say."""
    is_written: bool
    """Whether the file does say so."""


@dataclass(slots=True)
class _Kept:
    """One partition's file."""

    directory: str
    written: PartitionFile | None
    """What it says; None if it could not be written yet."""
    wanted: PartitionFile
    work: LogWork


class PartitionFiles:
    """What each file says, and what it should say."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._disk: Disk = runtime.disk
        self._kept: dict[PartitionKey, _Kept] = {}
        self._due: dict[PartitionKey, None] = {}
        self._runs = False

    def opened(self, one: OpenPartition, checked: Checked, work: LogWork) -> None:
        """Add the partition of a newly opened log whose directory was checked."""
        key, wanted = (one.topic_id, one.partition), checked.wanted
        written = wanted if checked.is_written else None
        self._kept[key] = _Kept(one.directory, written, wanted, work)
        self._see_to(key)

    def configured(self, key: PartitionKey, settings: dict[str, str], noted: TopicNote) -> None:
        """Set an open partition's topic settings, changed or not."""
        kept = self._kept[key]
        kept.wanted = replace(kept.wanted, settings=settings, noted=noted)
        self._see_to(key)

    def begun_anew(self, key: PartitionKey) -> bool:
        """Whether the log may lack records that its predecessor had."""
        kept = self._kept.get(key)
        return kept is not None and kept.wanted.begun_anew

    def in_sync(self, key: PartitionKey) -> None:
        """Record that the replica lacks nothing: it is in sync, or leads with none ahead of it."""
        if self.begun_anew(key):
            kept = self._kept[key]
            kept.wanted = replace(kept.wanted, begun_anew=False)
            self._see_to(key)

    def closing(self, key: PartitionKey) -> None:
        """Stop writing a partition's file."""
        self._kept.pop(key, None)
        self._due.pop(key, None)

    def _see_to(self, key: PartitionKey) -> None:
        if self._is_due(key):
            self._due[key] = None
            if not self._runs:
                self._runs = True
                self._runtime.start(self._write_all(), "partition files")

    def _is_due(self, key: PartitionKey) -> bool:
        kept = self._kept.get(key)
        return kept is not None and kept.written != kept.wanted

    async def _write_all(self) -> None:
        delay_ms = RETRY_MS
        while self._due:
            chosen = list(self._due)[:WRITES_AT_ONCE]
            for key in chosen:
                del self._due[key]
            failed = await self._write([key for key in chosen if self._is_due(key)])
            if failed:
                await self._runtime.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
                self._due |= {key: None for key in failed if self._is_due(key)}
        self._runs = False

    async def _write(self, keys: list[PartitionKey]) -> list[PartitionKey]:
        """Write some files in a thread; return the partitions that failed.

        A partition whose log is reserved is written once the reservation ends.
        """
        begun: dict[PartitionKey, _Kept] = {}
        for key in keys:
            kept = self._kept[key]
            if kept.work.begin(_TASK):
                begun[key] = kept
            else:
                kept.work.on_release(partial(self._see_to, key))
        files = {key: (kept.directory, kept.wanted) for key, kept in begun.items()}
        try:
            failed = await self._runtime.run_blocking(_write_files, self._disk, files)
        finally:
            for kept in begun.values():
                kept.work.end(_TASK)
        for key, (_, contents) in files.items():
            if key not in failed:
                begun[key].written = contents
        return failed


def check(one: OpenPartition, disk: Disk) -> Checked:
    """Check before opening a log that its directory is this partition's, and say so in its file.

    The directory must exist. Blocking.

    Raises KafkaStorageError if the directory is another partition's or the file is of a newer
    build. A file that cannot be written does not prevent an existing log from being opened. If
    there is no log, or it begins anew, OSError is raised instead: whoever opens it next must be
    able to tell what happened.
    """
    names = names_in(disk, one.directory)
    has_log = holds_log(names or ())
    wanted = PartitionFile(one.topic, one.topic_id, one.partition, one.settings, noted=one.noted)
    try:
        found = _found(one, disk)
        if found is not None and not found.is_of(wanted):
            raise KafkaStorageError(
                f"{one.directory} holds {found}, expected is {wanted}: directories were mixed up"
            )
        anew = found.begun_anew if found else _was_lost(one, disk, names or [], has_log=has_log)
        wanted = replace(wanted, begun_anew=anew)
        if found != wanted or anew:  # an earlier write may not be durable
            write_partition_file(disk, one.directory, wanted)
    except OSError as failure:
        if wanted.begun_anew or not has_log:
            raise
        _log_failed_write(one.directory, failure)
        return Checked(wanted, False)
    return Checked(wanted, True)


def names_in(disk: Disk, directory: str) -> list[str] | None:
    """Names in a directory; None if it is missing."""
    try:
        return disk.listdir(directory)
    except FileNotFoundError:
        return None


def _was_lost(one: OpenPartition, disk: Disk, names: list[str], *, has_log: bool) -> bool:
    """Whether a directory without a readable file lacks records that it once held.

    The existence of the directory proves nothing: its creator may have crashed before it held
    anything. If only the file is missing or damaged, the controller may know that the replica lacks
    records. It does not know that yet about a log that has just begun anew, but such a log is
    empty.
    """
    if not one.was_open:
        return False
    if one.lacks or not has_log:
        return True
    return PARTITION_FILE in names and not _has_records(disk, one.directory, names)


def _has_records(disk: Disk, directory: str, names: list[str]) -> bool:
    """Whether any segment has data, that is a base offset or length other than zero."""
    return any(
        _begins_with_data(disk, f"{directory}/{name}")
        for name in names
        if name.endswith(LOG_SUFFIX)
    )


def _begins_with_data(disk: Disk, path: str) -> bool:
    with opened(disk, path) as fd:
        return any(disk.pread(fd, _BATCH_HEAD, 0))


def _found(one: OpenPartition, disk: Disk) -> PartitionFile | None:
    try:
        return read_partition_file(disk, one.directory)
    except PartitionFileDamaged as damaged:
        log.warning("%s. It is written anew from the metadata", damaged)
        return None


def _write_files(
    disk: Disk, files: dict[PartitionKey, tuple[str, PartitionFile]]
) -> list[PartitionKey]:
    """Write files; return the partitions that failed."""
    failed = []
    for key, (directory, contents) in files.items():
        try:
            write_partition_file(disk, directory, contents)
        except OSError as failure:
            _log_failed_write(directory, failure)
            failed.append(key)
    return failed


def _log_failed_write(directory: str, failure: OSError) -> None:
    log.error("cannot write partition.json in %s, will retry: %s", directory, failure)
