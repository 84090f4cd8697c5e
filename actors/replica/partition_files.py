"""Keeps the file `partition.json` of the partitions that are open in this process.

It is compared when a log is opened, in the thread that opens it, and afterwards whenever the
topic's own settings change: then a thread writes the files of that topic, and of no other, one
after the other. A file that cannot be written is tried again while its partition is open.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

from raylog.actors.ports import OpenPartition, PartitionKey
from raylog.actors.runtime.base import Runtime
from raylog.storage.disk import Disk
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
WRITES_AT_ONCE = 50
"""Files a thread writes before the event loop looks what else changed, or was closed."""
RETRY_MS = 5_000
RETRY_MS_MAX = 60_000
_BATCH_HEAD = 12
"""Bytes of base offset and length, with which a batch begins."""


class Checked(NamedTuple):
    """A partition's directory before its log is opened."""

    wanted: PartitionFile
    """What the file should say."""
    is_written: bool
    """Whether the file says so."""


@dataclass(slots=True)
class _Kept:
    """One partition's file."""

    directory: str
    written: PartitionFile | None
    """What it says; None if that could not be written yet."""
    wanted: PartitionFile


class PartitionFiles:
    """Knows what each file says and what it should say."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._disk: Disk = runtime.disk
        self._kept: dict[PartitionKey, _Kept] = {}
        self._due: dict[PartitionKey, None] = {}
        self._writing: set[PartitionKey] = set()
        self._runs = False

    def opened(self, one: OpenPartition, checked: Checked) -> None:
        """A log is open whose directory was checked."""
        key, wanted = (one.topic_id, one.partition), checked.wanted
        self._kept[key] = _Kept(one.directory, wanted if checked.is_written else None, wanted)
        self._see_to(key)

    def configured(self, key: PartitionKey, settings: dict[str, str], noted: TopicNote) -> None:
        """An open partition's topic has these settings of its own: others, or still the same."""
        kept = self._kept[key]
        kept.wanted = replace(kept.wanted, settings=settings, noted=noted)
        self._see_to(key)

    def begun_anew(self, key: PartitionKey) -> bool:
        """Whether the log lacks what its predecessor had, for all that is known."""
        kept = self._kept.get(key)
        return kept is not None and kept.wanted.begun_anew

    def in_sync(self, key: PartitionKey) -> None:
        """The replica is in sync, or leads because nobody has more: nothing is missed any more."""
        if self.begun_anew(key):
            kept = self._kept[key]
            kept.wanted = replace(kept.wanted, begun_anew=False)
            self._see_to(key)

    def closing(self, key: PartitionKey) -> None:
        """Write the file of a partition no more."""
        self._kept.pop(key, None)
        self._due.pop(key, None)

    def is_writing(self, key: PartitionKey) -> bool:
        """Whether a thread may still write it: nobody may remove the directory then."""
        return key in self._writing

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
        """Have a thread write some files; returns whose could not be written."""
        files = {key: (self._kept[key].directory, self._kept[key].wanted) for key in keys}
        self._writing.update(keys)
        try:
            failed = await self._runtime.run_blocking(_write_files, self._disk, files)
        finally:
            self._writing.difference_update(keys)
        for key, (_, contents) in files.items():
            if key in self._kept and key not in failed:
                self._kept[key].written = contents
        return failed


def check(one: OpenPartition, disk: Disk) -> Checked:
    """Before a log is opened: see that its directory is this partition's, and says so. Blocking.

    The directory is there.

    Raises KafkaStorageError where the directory is another partition's, or the file of a newer
    build. A file that cannot be written keeps no log closed that is there. Where nothing of a log
    is, or it begins anew, OSError is raised: whoever opens it next must see what happened.
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
        if found != wanted or anew:  # who wrote so may have ended before it was durable
            write_partition_file(disk, one.directory, wanted)
    except OSError as failure:
        if wanted.begun_anew or not has_log:
            raise
        _tell(one.directory, failure)
        return Checked(wanted, False)
    return Checked(wanted, True)


def names_in(disk: Disk, directory: str) -> list[str] | None:
    """What is in a directory; None if it is missing."""
    try:
        return disk.listdir(directory)
    except FileNotFoundError:
        return None


def _was_lost(one: OpenPartition, disk: Disk, names: list[str], *, has_log: bool) -> bool:
    """Whether a directory whose file says nothing lacks records that were once in it.

    That it is there is no proof: its maker may have ended before anything was in it. Where only the
    file is missing or damaged the controller may know that the replica lacks records. It does not
    know yet of a log that was just begun anew, but nothing can be in that one.
    """
    if not one.was_open:
        return False
    if one.lacks or not has_log:
        return True
    return PARTITION_FILE in names and not _has_records(disk, one.directory, names)


def _has_records(disk: Disk, directory: str, names: list[str]) -> bool:
    """Whether any segment has data: a base offset or a length that is not zero."""
    return any(
        _begins_with_data(disk, f"{directory}/{name}")
        for name in names
        if name.endswith(LOG_SUFFIX)
    )


def _begins_with_data(disk: Disk, path: str) -> bool:
    fd = disk.open(path)
    try:
        return any(disk.pread(fd, _BATCH_HEAD, 0))
    finally:
        disk.close(fd)


def _found(one: OpenPartition, disk: Disk) -> PartitionFile | None:
    try:
        return read_partition_file(disk, one.directory)
    except PartitionFileDamaged as damaged:
        log.warning("%s. It is written anew from the metadata", damaged)
        return None


def _write_files(
    disk: Disk, files: dict[PartitionKey, tuple[str, PartitionFile]]
) -> list[PartitionKey]:
    """Write files; returns whose could not be written."""
    failed = []
    for key, (directory, contents) in files.items():
        try:
            write_partition_file(disk, directory, contents)
        except OSError as failure:
            _tell(directory, failure)
            failed.append(key)
    return failed


def _tell(directory: str, failure: OSError) -> None:
    log.error("partition.json in %s cannot be written, it is tried again: %s", directory, failure)
