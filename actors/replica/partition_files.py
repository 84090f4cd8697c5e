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


class Checked(NamedTuple):
    """A partition's directory before its log is opened."""

    wanted: PartitionFile
    """What the file should say."""
    is_made: bool
    """Whether the directory was not there."""
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

    Raises KafkaStorageError where the directory is another partition's, or the file of a newer
    build. A file that cannot be written keeps no log closed.
    """
    is_made = _is_missing(disk, one.directory)
    lost = is_made and one.was_open
    wanted = PartitionFile(one.topic, one.topic_id, one.partition, one.settings, lost, one.noted)
    try:
        disk.mkdir(one.directory)
        found = _found(one, disk)
        if found is not None and not found.is_of(wanted):
            raise KafkaStorageError(
                f"{one.directory} holds {found}, expected is {wanted}: directories were mixed up"
            )
        if found is not None and found.begun_anew:
            wanted = replace(wanted, begun_anew=True)
        if found != wanted:
            write_partition_file(disk, one.directory, wanted)
    except OSError as failure:
        _tell(one.directory, failure)
        return Checked(wanted, is_made, False)
    return Checked(wanted, is_made, True)


def _is_missing(disk: Disk, directory: str) -> bool:
    try:
        disk.listdir(directory)
    except FileNotFoundError:
        return True
    return False


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
