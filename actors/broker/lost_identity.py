"""What to do where a data directory with data in it has lost its `meta.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raylog.actors.metadata.log import MetadataLog
from raylog.actors.metadata.records import (
    ClusterNamed,
    MetadataCorrupt,
    VotersChanged,
    decode_record,
)
from raylog.storage.dry_run import DryRunDisk
from raylog.wire.errors import KafkaStorageError


def advice(metadata: Path, values: dict[str, Any]) -> str:
    """What to restore, or to write: `values`, where the directory's own metadata does not say more.

    `metadata` is where the metadata log is, if there is any. It is read, and not changed. Blocking.
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
    """The cluster's id and voters, as the metadata log names them last; None if it does not."""
    if not metadata.is_dir():
        return None
    cluster_id, voters = "", None
    try:
        copy = MetadataLog(metadata, DryRunDisk())
        copy.close()
        encoded = [*copy.snapshot.records, *(one for at in copy.entries for one in at.records)]
        for record in map(decode_record, encoded):
            match record:
                case ClusterNamed():
                    cluster_id = record.cluster_id
                case VotersChanged():
                    voters = record.voters
                case _:
                    pass
    except (MetadataCorrupt, KafkaStorageError, OSError):
        return None  # the broker says what is wrong with it when it has a meta.json
    return (cluster_id, voters) if cluster_id and voters is not None else None
