"""What is known of the batches in a folder that a pipeline lands in.

A manifest is JSON: the `version` of what follows, the number of `rows`, and as `batch` what sinks
keep of one (`sink_state`): its query and number, and where each source began and ended. It is with
the files of its batch, and that of the newest batch in the folder as well. Builds that wrote no
manifests are version 0.
"""

from __future__ import annotations

import json
from pathlib import Path

from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.sink_state import SinkState, WrittenBatch, decode_state, encode_state

COLUMN = "batch"
VERSION = 1
MANIFEST, NEWEST = "_manifest.json", "_landed.json"
"""With a batch, and in the folder."""


class LandingFailed(PipelineFailed):
    """A batch has not landed, and is not there."""


def batch_folder(folder: Path, batch_id: int) -> Path:
    """Where a batch is once it has landed."""
    return folder / f"{COLUMN}={batch_id}"


def highest_batch(folder: Path) -> int | None:
    """The highest number of a batch that is there."""
    names = (path.name.partition("=")[2] for path in folder.glob(f"{COLUMN}=*"))
    return max((int(name) for name in names if name.isdigit()), default=None)


def newest_landed(folder: Path) -> WrittenBatch | None:
    """The newest batch of which there is a manifest. Raises LandingFailed, StateUnreadable."""
    highest = highest_batch(folder)
    paths = [folder / NEWEST]
    if highest is not None:
        paths.append(batch_folder(folder, highest) / MANIFEST)
    found = [manifest for path in paths if (manifest := _read_manifest(path)) is not None]
    return max(found, key=lambda each: each.mark.batch_id, default=None)


def encode_manifest(batch: WrittenBatch, count: int) -> str:
    """The manifest of a batch of so many rows."""
    document = json.loads(encode_state(SinkState(batch=batch)))
    return json.dumps({"version": VERSION, "rows": count, **document})


def _read_manifest(path: Path) -> WrittenBatch | None:
    """What a manifest says; None if there is none. Raises LandingFailed, StateUnreadable."""
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
