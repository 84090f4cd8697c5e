"""Opens and closes the logs of a Replica process, in an executor's thread."""

from __future__ import annotations

import logging
from pathlib import Path

from raylog.actors.ports import OpenPartition, PartitionKey
from raylog.actors.replica import partition_files
from raylog.actors.replica.config import partition_config
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.partition_files import Checked
from raylog.storage.disk import Disk
from raylog.storage.log import Log
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)


def open_logs(
    asked: list[OpenPartition], disk: Disk, now_ms: int, flush_failed: frozenset[PartitionKey]
) -> list[tuple[Log, Checked] | KafkaError | OSError]:
    """Each log with what its directory says, or why it cannot be opened.

    `flush_failed`: those of which this process knows that what was not flushed is in doubt.
    """
    opened = [
        _open_log(one, disk, now_ms, (one.topic_id, one.partition) in flush_failed) for one in asked
    ]
    made = {
        one.directory.rpartition("/")[0]
        for one, outcome in zip(asked, opened, strict=True)
        if isinstance(outcome, tuple) and outcome[1].is_made
    }
    for parent in made:
        disk.fsync_dir(parent)  # that one is not there shall mean that it was lost
    return opened


def _open_log(
    one: OpenPartition, disk: Disk, now_ms: int, flush_failed: bool
) -> tuple[Log, Checked] | KafkaError | OSError:
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
    """Close logs; with `delete` their files go, too. KAFKA_STORAGE_ERROR."""
    for partition in partitions:
        partition.close()
        if delete:
            partition.log.delete()
