"""Writes batches as folders of Parquet files; each batch appears completely or not at all.

| path in the folder | contents |
|---|---|
| `batch=N/` | the rows of batch N, and `_manifest.json` |
| `_writing/` | a batch that is not complete; readers ignore it because of its name |
| `_query` | the id of the query that owns the folder |
| `_landed.json` | the manifest of the newest batch, in case folders of batches are removed |

For the contents of manifests, see `manifests`.

A batch is written to a draft folder; the driver counts the rows in its files, then renames it. Any
reader of Parquet sees each row once and needs no knowledge of batches; readers that support Hive
partitioning see `batch` as a column. This needs a file system that all nodes share, which renames
folders atomically and refuses to replace one with files in it: NFS, or a local disk if everything
runs on one machine; not object stores.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet  # type: ignore[import-untyped]  # it has no types

from raylog.raydp_jobs.checkpoints import BatchSource
from raylog.raydp_jobs.pipelines.manifests import (
    COLUMN,
    MANIFEST,
    NEWEST,
    LandingFailed,
    batch_folder,
    encode_manifest,
    highest_batch,
    newest_landed,
)
from raylog.raydp_jobs.pipelines.spec import BadSpec
from raylog.sink.batches import Batch
from raylog.sink.continuity import is_written
from raylog.sink.state import SinkState, WrittenBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY})


def check_columns(rows: DataFrame) -> None:
    """Raise BadSpec for a column that readers would see twice."""
    if COLUMN in map(str.lower, rows.columns):
        raise BadSpec(f"transform: the column {COLUMN!r} is one of the folder's own")


@dataclass(frozen=True, slots=True)
class Landing:
    """A folder of one query's batches."""

    folder: Path

    def write(
        self,
        rows: DataFrame,
        source: BatchSource,
        made: Callable[[], int | None],
        check: Callable[[], object] = lambda: None,
    ) -> bool:
        """Land a batch unless it has landed; return whether it was new.

        `made` is called once the rows are written, and returns how many rows the tasks produced,
        None if unknown. `check` is called before the batch is published; if it raises, the batch is
        not. Raises LandingFailed, SourceMismatch or StateUnreadable.
        """
        if self._has(rows, source):
            return False
        drafts = self.folder / "_writing"
        shutil.rmtree(drafts, ignore_errors=True)  # of an incomplete batch
        draft = drafts / f"{source.batch_id}-{secrets.token_hex(4)}"
        rows.write.option("compression", "zstd").parquet(f"file://{draft}")
        count = self._counted(draft, source, made())
        check()
        self._publish(draft, source, count)
        shutil.rmtree(drafts)
        return True

    def _has(self, rows: DataFrame, source: BatchSource) -> bool:
        """Return whether a batch has landed; raise LandingFailed or SourceMismatch."""
        is_ours = self._claim(source.query_id)
        highest, newest = highest_batch(self.folder), newest_landed(self.folder)
        if highest is None and newest is None and not is_ours and source.batch_id > 0:
            raise LandingFailed(
                f"{self.folder} is empty, and {source.mark} is not the first: is the right file "
                "system mounted? To have this query land its next batches in an empty folder, put "
                f"its id there: echo {source.query_id} > {self.folder / '_query'}"
            )
        self._own(source.query_id)
        if highest is not None and (newest is None or newest.mark.batch_id < highest):
            return self._older_has(highest, rows, source)
        return is_written(SinkState(1, newest), Batch(source.mark, (), source.sources))

    def _older_has(self, highest: int, rows: DataFrame, source: BatchSource) -> bool:
        """Like `_has` if the newest batch has no manifest: compares row counts, not ends.

        Raises LandingFailed.
        """
        if source.batch_id > highest:
            return False
        if source.batch_id < highest:
            raise LandingFailed(
                f"{source.mark} comes after batch {highest}, which has landed in {self.folder}: "
                "the checkpoint is an older copy. Restore the newest one, or begin with another "
                "folder and checkpoint"
            )
        there, found = _rows_of(batch_folder(self.folder, highest)), rows.count()
        if there != found:
            raise LandingFailed(
                f"{source.mark} has {found} rows, what has landed under this number in "
                f"{self.folder} has {there}: the checkpoint is not the one it landed with"
            )
        return True

    def _counted(self, draft: Path, source: BatchSource, made: int | None) -> int:
        """Return how many rows a batch's files have; raise LandingFailed if some are missing."""
        found = _rows_of(draft)
        if made is not None and made != found:
            raise LandingFailed(
                f"{source.mark}: the tasks have written {made} rows, the driver finds {found} in "
                f"{draft}: sink.path must be on a file system that all nodes share"
            )
        return found

    def _publish(self, draft: Path, source: BatchSource, count: int) -> None:
        """Publish the files as the batch, durably."""
        manifest = encode_manifest(WrittenBatch(source.mark, source.sources), count)
        (draft / MANIFEST).write_text(manifest)
        for path in [*draft.iterdir(), draft]:
            _sync(path)
        try:
            draft.rename(batch_folder(self.folder, source.batch_id))
        except OSError as failure:
            if failure.errno not in _TAKEN:
                raise
            raise LandingFailed(f"another run has landed {source.mark} meanwhile") from failure
        self._replace(NEWEST, manifest)

    def _claim(self, query_id: str) -> bool:
        """Return whether the query owns the folder; raise LandingFailed if another query does.

        Batches of two queries with the same number are different.
        """
        owned = self.folder / "_query"
        if not owned.exists():
            return False
        owner = owned.read_text().strip()
        if owner != query_id:
            raise LandingFailed(
                f"{self.folder} holds the rows of another query ({owner}); this one is {query_id}: "
                "a lost checkpoint begins with another folder"
            )
        return True

    def _own(self, query_id: str) -> None:
        """Make the query the folder's owner."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "_query").exists():
            self._replace("_query", query_id)

    def _replace(self, name: str, text: str) -> None:
        """Replace a file atomically and durably."""
        draft = self.folder / f"{name}-{secrets.token_hex(4)}"
        draft.write_text(text)
        _sync(draft)
        draft.replace(self.folder / name)
        _sync(self.folder)


def _rows_of(folder: Path) -> int:
    """Return how many rows a folder's Parquet files have, from their footers."""
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def _sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is durable."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
