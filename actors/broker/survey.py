"""Reads a broker's data directory offline, without changing anything."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.broker.rules.directories import is_partition, parse_directory_name
from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.coordination.rules import records
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.metadata.found import PRODUCER_ID_MAX, FoundBroker, FoundReplica
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.rebuilt_settings import COMPACTED
from raylog.actors.metadata.records import decode_record
from raylog.actors.names import TRANSACTIONS_TOPIC
from raylog.storage.checkpoint import StateFile
from raylog.storage.config import LogConfig
from raylog.storage.dry_run import DryRunDisk
from raylog.storage.files import SegmentFiles
from raylog.storage.partition_file import (
    PartitionFile,
    PartitionFileDamaged,
    TopicNote,
    read_partition_file,
)
from raylog.storage.recovery import Recovery
from raylog.storage.shared_state import SharedLogState
from raylog.wire.bulk import bulk_records
from raylog.wire.errors import KafkaError
from raylog.wire.internal.blobs import TRANSACTIONS_TOPIC as TRANSACTION_RECORDS
from raylog.wire.internal.transactions import TransactionLogValue
from raylog.wire.records import DECOMPRESSED_BYTES_MAX, body_of

log = logging.getLogger(__name__)
_DISK = DryRunDisk()


def surviving_image(data: DataDirectory) -> MetadataImage | None:
    """Return the metadata of the copy in this directory; None if it is empty.

    It includes uncommitted records. Blocking. Raises MetadataCorrupt and KafkaStorageError.
    """
    if not data.has_metadata_log:
        return None
    log = MetadataLog(data.metadata, _DISK)
    log.close()
    copy = log.copy
    image = MetadataImage()
    image.apply_update(-1, copy.snapshot.offset, map(decode_record, copy.snapshot.records))
    for entry in copy.entries:
        image.apply_all(map(decode_record, entry.records))
    return image if image.offset else None


def partition_directories(data: DataDirectory) -> list[Path]:
    """List the directories of partitions; strays and other entries are skipped."""
    if not data.topics.is_dir():
        return []
    return sorted(path for path in data.topics.iterdir() if is_partition(path.name))


def survey(directories: list[Path], image: MetadataImage | None) -> Iterator[FoundReplica]:
    """Yield the partitions in these directories one by one, so that progress can be shown.

    If a log's own file does not say whether it is compacted, `image` does. Logs are recovered as at
    a broker's start, which scans what a crash left. Blocking. Raises OSError, and KafkaStorageError
    for files of a newer build.
    """
    for path in directories:
        yield _replica(path, image)


def found_broker(
    data: DataDirectory, replicas: tuple[FoundReplica, ...], image: MetadataImage | None
) -> FoundBroker:
    """Describe a broker with the partitions that `survey` has found."""
    known = [data.followed] if image is None else [data.followed, image.followed]
    return FoundBroker(
        broker_id=data.identity.broker_id,
        cluster_id=data.identity.cluster_id,
        directory_id=data.identity.directory_id,
        broker_epoch=data.last.broker_epoch,
        metadata_offset=max(one.offset for one in known),
        metadata_epoch=max(one.epoch for one in known),
        replicas=replicas,
        followed=data.followed,
        voters=tuple(broker_id for broker_id, _ in data.identity.voters),
    )


def _replica(path: Path, image: MetadataImage | None) -> FoundReplica:
    said = _said(path)
    if said is None:
        name, (topic_id, partition) = parse_directory_name(path.name)
        policies = _looked_up(topic_id, name, image).get("cleanup.policy", "")
    else:
        name, topic_id, partition = said.topic, TopicId(said.topic_id), said.partition
        policies = said.settings.get("cleanup.policy", "")
    noted = TopicNote() if said is None else said.noted
    files = SegmentFiles(_DISK, str(path))
    config = LogConfig(compact="compact" in policies)
    recovery = Recovery(str(path), config, _DISK, files, int(time.time() * 1_000))
    found = recovery.run(StateFile(_DISK, str(path)), clean=True)
    producer_ids = {one.producer_id for one in found.producers.describe()}
    if name == TRANSACTIONS_TOPIC:
        producer_ids |= _in_transactions(files, found)
    strange = {one for one in producer_ids if one > PRODUCER_ID_MAX}
    return FoundReplica(
        topic_id=topic_id,
        partition=partition,
        topic=name,
        settings=None if said is None else said.settings,
        log_start_offset=found.start_offset,
        log_end_offset=found.end_offset,
        last_epoch=found.epochs.latest,
        highest_producer_id=max(producer_ids - strange, default=-1),
        is_whole=found.is_whole and not (said and said.begun_anew),
        directory=path.name,
        partitions=noted.partitions,
        settings_at=(noted.metadata_epoch, noted.metadata_offset),
        strange_producer_id=max(strange, default=-1),
    )


def _said(path: Path) -> PartitionFile | None:
    """Read the directory's own file; None if it has none, as in older builds."""
    try:
        return read_partition_file(_DISK, str(path))
    except PartitionFileDamaged as damaged:
        log.warning("%s", damaged)
        return None


def _looked_up(topic_id: TopicId, name: str | None, image: MetadataImage | None) -> dict[str, str]:
    """Look up a topic's own settings in a copy of the metadata."""
    topic = image.topics.get(topic_id) if image is not None else None
    if image is not None and topic is not None:
        return image.configs_of(ResourceType.TOPIC, topic.name)
    return COMPACTED if name in KIND_OF_TOPIC else {}


def _in_transactions(files: SegmentFiles, found: SharedLogState) -> set[int]:
    """Producer ids assigned to transactional ids; damaged batches are skipped."""
    producer_ids: set[int] = set()
    for segment in found.segments:
        for _, header, batch in files.batches(segment, 0, check=True):
            if header.is_control or not header.record_count:
                continue
            try:
                body = body_of(batch, header, DECOMPRESSED_BYTES_MAX)
                for _, key, value, _ in bulk_records(body, header.record_count, header.base_offset):
                    producer_ids |= _producer_ids(key, value)
            except KafkaError as damaged:
                log.warning("%s: %s", files.path(segment.name), damaged)
    return producer_ids


def _producer_ids(key: bytes | None, value: bytes | None) -> set[int]:
    record = records.decode(TRANSACTION_RECORDS, key, value)
    if record is None or not isinstance(record.value, TransactionLogValue):
        return set()
    return {record.value.producer_id, record.value.next_producer_id}
