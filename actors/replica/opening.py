"""Opens and closes the logs of a Replica process, in an executor's thread."""

from __future__ import annotations

import logging
from pathlib import Path

from raylog.actors.common_messages import OpenPartition, PartitionKey
from raylog.actors.replica import partition_files
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.partition_files import Checked, names_in
from raylog.actors.replica.rules.config import partition_config
from raylog.storage.disk import Disk, sync_names_anew
from raylog.storage.log import Log
from raylog.wire.errors import KafkaError, KafkaStorageError

log = logging.getLogger(__name__)

Outcome = tuple[Log, Checked] | KafkaError | OSError


def open_logs(
    openings: list[OpenPartition], disk: Disk, now_ms: int, flush_failed: frozenset[PartitionKey]
) -> list[Outcome]:
    """Open logs; return each with its directory's contents, or why it cannot be opened.

    `flush_failed` holds the partitions whose unflushed data this process knows to be in doubt.
    """
    failures = _make_directories(openings, disk)
    return [
        failures.get(one.directory)
        or _open_log(one, disk, now_ms, (one.topic_id, one.partition) in flush_failed)
        for one in openings
    ]


def _make_directories(openings: list[OpenPartition], disk: Disk) -> dict[str, OSError]:
    """Make missing directories and their names durable; return the failures.

    This is done so that a directory that is missing later was certainly lost. An empty directory is
    treated as new: its creator may have failed before or while making its name durable.
    """
    failures: dict[str, OSError] = {}
    new: dict[str, list[str]] = {}
    for one in openings:
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
    if not opened.state.is_whole:
        log.error(
            "%s is damaged: it ends at offset %d and had everything below %d. It follows a replica "
            "that has the rest; without one it stays offline until an unclean election",
            one.directory,
            opened.log_end_offset,
            opened.state.held,
        )
    return opened, checked


def close_logs(partitions: list[Partition], delete: bool) -> None:
    """Close logs; with `delete`, also remove their files.

    A failure does not keep the others from closing: KAFKA_STORAGE_ERROR names all that failed.
    """
    failures = [why for one in partitions if (why := _close_log(one, delete)) is not None]
    if failures:
        raise KafkaStorageError(
            f"{len(failures)} of {len(partitions)} logs are not closed: {'; '.join(failures)}"
        )


def _close_log(partition: Partition, delete: bool) -> str | None:
    """Close one log; return why it failed. A deleted log need not be closed cleanly."""
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
