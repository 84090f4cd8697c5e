"""Notes that a broker starts, and that it ended in order."""

from __future__ import annotations

import logging

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import KafkaStorageError

log = logging.getLogger(__name__)
RETRY_MS = 1_000
"""After the first failure; it doubles with each, up to RETRY_MS_MAX."""
RETRY_MS_MAX = 30_000


async def note_start(runtime: Runtime, data: DataDirectory) -> None:
    """Note that a broker's process has started, however long that takes.

    The disk is full or fails: the broker stays out of the cluster (KIP-112). It does not end, since
    the process that came after it would fare no better, and it goes on when there is space.
    """
    delay_ms = RETRY_MS
    while True:
        try:
            data.note_start()
        except OSError as failure:
            path = data.path / "state.json"
            log.error("the broker waits to start: %s cannot be written: %s", path, failure)
        else:
            return
        await runtime.sleep(delay_ms / 1000)
        delay_ms = min(2 * delay_ms, RETRY_MS_MAX)


async def note_end(runtime: Runtime, data: DataDirectory) -> None:
    """Note that a broker has shut down cleanly; raises KafkaStorageError if that cannot be."""
    try:
        await runtime.run_blocking(data.note_end)
    except OSError as failure:
        raise KafkaStorageError(f"the end is not noted in {data.path}: {failure}") from failure
