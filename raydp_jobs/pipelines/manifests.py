"""Manifests of the batches in a folder that a pipeline lands in.

A manifest is JSON: the format's `version`, the number of `rows`, and in `batch` the same as in a
sink's state (`raylog.sink.state`): query and number, and where each source began and ended. It is
stored with its batch's files; the newest batch's manifest is also in the folder itself. Version 0
means builds that wrote no manifests.
"""

from __future__ import annotations

import json
from pathlib import Path

from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.sink.state import SinkState, WrittenBatch, decode_state, encode_state

COLUMN = "batch"
VERSION = 1
MANIFEST, NEWEST = "_manifest.json", "_landed.json"
"""File names, in a batch's folder and in the folder of all batches."""


class LandingFailed(PipelineFailed):
    """A batch has not landed, and its rows are not in the folder."""


def batch_folder(folder: Path, batch_id: int) -> Path:
    """Return the folder of a batch that has landed."""
    return folder / f"{COLUMN}={batch_id}"


def highest_batch(folder: Path) -> int | None:
    """Return the highest number of a batch in the folder."""
    names = (path.name.partition("=")[2] for path in folder.glob(f"{COLUMN}=*"))
    return max((int(name) for name in names if name.isdigit()), default=None)


def newest_landed(folder: Path) -> WrittenBatch | None:
    """Return the newest batch that has a manifest. Raises LandingFailed or StateUnreadable."""
    highest = highest_batch(folder)
    paths = [folder / NEWEST]
    if highest is not None:
        paths.append(batch_folder(folder, highest) / MANIFEST)
    found = [manifest for path in paths if (manifest := _read_manifest(path)) is not None]
    return max(found, key=lambda each: each.mark.batch_id, default=None)


def encode_manifest(batch: WrittenBatch, count: int) -> str:
    """Encode the manifest of a batch with this many rows."""
    document = json.loads(encode_state(SinkState(batch=batch)))
    return json.dumps({"version": VERSION, "rows": count, **document})


def _read_manifest(path: Path) -> WrittenBatch | None:
    """Read a manifest; None if there is none. Raises LandingFailed or StateUnreadable."""
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        version = json.loads(text)["version"]
    except (ValueError, TypeError, KeyError) as failure:
        raise LandingFailed(f"{path} is damaged: {failure}") from failure
    if version != VERSION:
        raise LandingFailed(
            f"{path} is of version {version}, this build knows 0 (no such file) and {VERSION}: a "
            "newer build has written it"
        )
    return decode_state(text.encode(), 1, str(path)).batch
