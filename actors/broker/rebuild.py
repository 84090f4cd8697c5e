"""Writes rebuilt metadata: a copy for each voter, and the voters into every `meta.json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.entries import LogSnapshot
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.log_copy import Promise
from raylog.actors.metadata.rebuilding import RebuildPlan, records_of
from raylog.actors.metadata.records import encode_record
from raylog.storage.disk import OsDisk

_DISK = OsDisk()


def carry_out(plan: RebuildPlan, held: Sequence[DataDirectory]) -> list[Path]:
    """Write the metadata of a plan without problems; return where older copies were moved.

    `held` are the directories of all the plan's brokers. After a crash each directory has a whole
    copy of this plan or none, so the command can be repeated. Blocking; raises OSError.
    """
    assert not plan.problems, "a plan with problems is not carried out"
    records = tuple(encode_record(record) for record in records_of(plan))
    snapshot = LogSnapshot(plan.offset, plan.epoch, records)
    moved = []
    for data in held:  # first, so that a repetition continues above this plan
        data.note_followed(Followed(plan.metadata_id, plan.epoch, plan.offset))
    for data in held:
        draft = data.path / "metadata.rebuilt"
        _DISK.remove_tree(str(draft))
        if any(voter == data.identity.broker_id for voter, _ in plan.voters):
            _write(draft, snapshot)
        if data.has_metadata_log:
            moved.append(_put_aside(data.metadata))
        if draft.exists():
            _DISK.rename(str(draft), str(data.metadata))
        _DISK.fsync_dir(str(data.path))
    for data in held:
        data.remember_voters(plan.voters)
    return moved


def _write(directory: Path, snapshot: LogSnapshot) -> None:
    log = MetadataLog(directory, _DISK)
    log.write([Promise(snapshot.epoch)])
    log.finish_install(snapshot, log.prepare_install(snapshot))
    log.sync()
    log.close()


def _put_aside(metadata: Path) -> Path:
    """Move an older copy to a name that no broker reads."""
    target = metadata.with_name(f"{metadata.name}.{time.time_ns()}-replaced")
    _DISK.rename(str(metadata), str(target))
    return target
