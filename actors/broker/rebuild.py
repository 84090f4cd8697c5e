"""Puts rebuilt metadata in place: a copy for each voter, and who they are in every `meta.json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.log import LogSnapshot, MetadataLog
from raylog.actors.metadata.rebuilding import RebuildPlan, records_of
from raylog.actors.metadata.records import encode_record
from raylog.storage.disk import OsDisk

_DISK = OsDisk()


def carry_out(plan: RebuildPlan, held: Sequence[DataDirectory]) -> list[Path]:
    """Write the metadata of a plan without problems; returns where older copies were moved.

    `held` are the directories of all the plan's brokers. A crash leaves copies of this plan or
    none, each of them whole: the command can be run again. Blocking; OSError.
    """
    assert not plan.problems, "a plan with problems is not carried out"
    records = tuple(encode_record(record) for record in records_of(plan))
    snapshot = LogSnapshot(plan.offset, plan.epoch, records)
    moved = []
    for data in held:  # before there is a copy: a repetition must go on above this plan
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
    copy = MetadataLog(directory, _DISK)
    copy.promise(snapshot.epoch)
    copy.finish_install(snapshot, copy.prepare_install(snapshot))
    copy.sync()
    copy.close()


def _put_aside(metadata: Path) -> Path:
    """Keep an older copy under a name that no broker looks at."""
    target = metadata.with_name(f"{metadata.name}.{time.time_ns()}-replaced")
    _DISK.rename(str(metadata), str(target))
    return target
