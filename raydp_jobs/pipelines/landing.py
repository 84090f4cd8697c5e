"""Batches as folders of Parquet files, each there as a whole or not at all.

| path in the folder | contents |
|---|---|
| `batch=N/` | the rows of batch N |
| `_writing/` | those of a batch that is not done; readers pass it over by its name |
| `_query` | whose batches these are |

A batch is written beside, then renamed. Any reader of Parquet sees each row once, without knowing
of batches; `batch` is a column to those that know Hive's folders. Needs a file system that renames
folders at once and refuses to where there is one: local disks, NFS; not object stores.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.spec import BadSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN = "batch"


def check_columns(rows: DataFrame) -> None:
    """Raise BadSpec for a column that readers would find twice."""
    if COLUMN in map(str.lower, rows.columns):
        raise BadSpec(f"transform: the column {COLUMN!r} is one of the folder's own")


@dataclass(frozen=True, slots=True)
class Landing:
    """A folder that one query lands its batches in."""

    folder: Path

    def write(
        self,
        rows: DataFrame,
        query_id: str,
        batch_id: int,
        check: Callable[[], object] | None = None,
    ) -> bool:
        """Land a batch unless it is there; returns whether it was new. Raises PipelineFailed.

        `check` is called once the files are written; if it raises, they do not become the batch.
        """
        self._claim(query_id)
        done = self.folder / f"{COLUMN}={batch_id}"
        if done.exists():
            return False
        drafts = self.folder / "_writing"
        shutil.rmtree(drafts, ignore_errors=True)  # of a batch that was not done
        draft = drafts / f"{batch_id}-{secrets.token_hex(4)}"
        rows.write.option("compression", "zstd").parquet(f"file://{draft}")
        if check is not None:
            check()
        draft.rename(done)  # fails if somebody else has landed it: the next run finds it there
        shutil.rmtree(drafts)
        return True

    def _claim(self, query_id: str) -> None:
        """Refuse a folder of another query: batches of the same number are not the same."""
        mark = self.folder / "_query"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not mark.exists():
            draft = mark.with_name(f"_query-{secrets.token_hex(4)}")
            draft.write_text(query_id)
            draft.replace(mark)
        owner = mark.read_text()
        if owner != query_id:
            raise PipelineFailed(
                f"{self.folder} holds the rows of another query ({owner}); this one is {query_id}: "
                "a lost checkpoint begins with another folder"
            )
