"""Forks Spark's Python workers as `pyspark.daemon` does, for tasks that are shorter than its rites.

`spark.python.daemon.module` names it. A worker of pyspark does two things for each task that take
longer than a small task itself:

- It invalidates all import caches. Spark puts its jar and two zip files on the path, and Python
  reads the directories of archives anew for that: some 70 ms of a core. Where pyspark is installed
  nothing is imported from them, so they leave the path.
- It collects garbage, through all that was ever imported: 60 to 120 ms. What the daemon has
  imported is frozen before it forks, so collectors pass it over.
"""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec
from pathlib import Path

MODULE = "raylog.raydp_jobs.worker_daemon"
SETTING = "spark.python.daemon.module"
_ARCHIVES = (".jar", ".zip")
_SPARKS = ("pyspark", "py4j", "spark-core")


def leave_archives() -> None:
    """Take Spark's archives off the path if pyspark is there without them."""
    before = list(sys.path)
    sys.path[:] = [each for each in before if not _is_sparks(each)]
    sys.path_importer_cache.clear()
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = before


def _is_sparks(entry: str) -> bool:
    name = Path(entry).name
    return name.endswith(_ARCHIVES) and name.startswith(_SPARKS)


if __name__ == "__main__":
    leave_archives()
    from pyspark.daemon import manager

    import raylog.raydp_jobs.rows
    import raylog.raydp_jobs.tasks  # noqa: F401  # forked workers have both

    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]  # it has no types
