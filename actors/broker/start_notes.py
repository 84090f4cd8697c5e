"""Records a broker's start and its clean shutdown."""

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
    """Record that a broker's process has started, retrying until that succeeds.

    While the disk is full or fails, the broker stays out of the cluster (KIP-112). It does not
    exit, because its successor would fare no better, and it continues as soon as there is space.
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
    """Record a clean shutdown; raises KafkaStorageError if that fails."""
    try:
        await runtime.run_blocking(data.note_end)
    except OSError as failure:
        raise KafkaStorageError(f"{data.path} cannot record the shutdown: {failure}") from failure
