"""Advises what to do with a data directory that holds data but has lost its `meta.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.records import (
    ClusterNamed,
    MetadataCorrupt,
    VotersChanged,
    decode_record,
)
from raylog.storage.dry_run import DryRunDisk
from raylog.wire.errors import KafkaStorageError


def advice(metadata: Path, values: dict[str, Any]) -> str:
    """Return which file to restore or write: `values`, or what the directory's metadata says.

    `metadata` is the directory of the metadata log, if any. It is read and not changed. Blocking.
    """
    known = _known(metadata)
    if known is None:
        source = (
            "where cluster_id and voters have to be those in the meta.json of the other brokers"
        )
    else:
        cluster_id, voters = known
        own = dict(voters).get(values["broker_id"], values["directory_id"])
        values = {**values, "cluster_id": cluster_id, "directory_id": own, "voters": voters}
        source = "as the metadata in this directory says"
    return (
        "Nothing is changed. Restore meta.json or its copy, or write meta.json: "
        f"{json.dumps(values)}, {source}. Do not let the broker begin with an empty directory: "
        "what only this one holds would be lost, records or the metadata of the cluster. If the "
        "metadata is lost, too, `raylog metadata rebuild` makes it from what the brokers have "
        "once each has its meta.json (docs/operations.md, Lost directories)"
    )


def _known(metadata: Path) -> tuple[str, tuple[tuple[int, str], ...]] | None:
    """Read the cluster id and the last voters from the metadata log; None if it has none."""
    if not metadata.is_dir():
        return None
    cluster_id, voters = "", None
    try:
        log = MetadataLog(metadata, DryRunDisk())
        log.close()
        encoded = log.copy.records()
        for record in map(decode_record, encoded):
            match record:
                case ClusterNamed():
                    cluster_id = record.cluster_id
                case VotersChanged():
                    voters = record.voters
                case _:
                    pass
    except (MetadataCorrupt, KafkaStorageError, OSError):
        return None  # the broker reports the damage once it has a meta.json
    return (cluster_id, voters) if cluster_id and voters is not None else None
