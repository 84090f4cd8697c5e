"""Opens and closes the logs of a Replica process, in an executor's thread."""

from __future__ import annotations

import logging
from pathlib import Path

from raylog.actors.ports import OpenPartition, PartitionKey
from raylog.actors.replica import partition_files
from raylog.actors.replica.config import partition_config
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.partition_files import Checked, names_in
from raylog.storage.disk import Disk, sync_names_anew
from raylog.storage.log import Log
from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)

Outcome = tuple[Log, Checked] | KafkaError | OSError


def open_logs(
    asked: list[OpenPartition], disk: Disk, now_ms: int, flush_failed: frozenset[PartitionKey]
) -> list[Outcome]:
    """Each log with what its directory says, or why it cannot be opened.

    `flush_failed`: those of which this process knows that what was not flushed is in doubt.
    """
    failures = _make_directories(asked, disk)
    return [
        failures.get(one.directory)
        or _open_log(one, disk, now_ms, (one.topic_id, one.partition) in flush_failed)
        for one in asked
    ]


def _make_directories(asked: list[OpenPartition], disk: Disk) -> dict[str, OSError]:
    """Make the directories that are new, and their names durable; returns why some are not.

    That one is not there shall mean that it was lost. An empty one counts as new: whoever made it
    may have failed before its name was durable, or to make it so.
    """
    failures: dict[str, OSError] = {}
    new: dict[str, list[str]] = {}
    for one in asked:
        try:
            if not names_in(disk, one.directory):
                disk.mkdir(one.directory)
                new.setdefault(one.directory.rpartition("/")[0], []).append(one.directory)
        except OSError as failure:
            failures[one.directory] = failure
    for parent, directories in new.items():
        try:
            sync_names_anew(disk, parent)
        except OSError as failure:
            failures |= dict.fromkeys(directories, failure)
    for directory, why in failures.items():
        log.error("cannot make %s: %s", directory, why)
    return failures


def _open_log(one: OpenPartition, disk: Disk, now_ms: int, flush_failed: bool) -> Outcome:
    config = partition_config(one.config).log
    try:
        checked = partition_files.check(one, disk)
        path = Path(one.directory)
        opened = Log.open(path, config, disk, now_ms=now_ms, flush_failed=flush_failed)
    except (KafkaError, OSError) as failure:
        log.exception("cannot open %s-%d in %s", one.topic, one.partition, one.directory)
        return failure
    if checked.wanted.begun_anew:
        log.error(
            "%s was lost and begins anew. It follows a replica that has its records; without one "
            "it stays offline until an unclean election",
            one.directory,
        )
    if not opened.is_whole:
        log.error(
            "%s is damaged: it ends at offset %d and had everything below %d. It follows a replica "
            "that has the rest; without one it stays offline until an unclean election",
            one.directory,
            opened.log_end_offset,
            opened.held,
        )
    return opened, checked


def close_logs(partitions: list[Partition], delete: bool) -> None:
    """Close logs; with `delete` their files go, too.

    One that fails does not keep the others: KAFKA_STORAGE_ERROR names all that failed.
    """
    failures = [why for one in partitions if (why := _close_log(one, delete)) is not None]
    if failures:
        raise KafkaStorageError(
            f"{len(failures)} of {len(partitions)} logs are not closed: {'; '.join(failures)}"
        )


def _close_log(partition: Partition, delete: bool) -> str | None:
    """Close one; returns why it failed. What is deleted need not be closed cleanly."""
    directory = partition.log.directory
    try:
        partition.close()
    except (KafkaError, OSError) as failure:
        log.error("cannot close %s: %s", directory, failure)
        if not delete:
            return f"{directory}: {failure}"
    try:
        if delete:
            partition.log.delete()
    except OSError as failure:
        log.error("cannot delete the files in %s: %s", directory, failure)
        return f"{directory}: {failure}"
    return None
