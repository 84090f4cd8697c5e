"""What a broker tells of its data directory."""

from __future__ import annotations

import logging

from raylog.actors.ports import LogDirStatus, PartitionStatus
from raylog.actors.runtime.base import Runtime

log = logging.getLogger(__name__)


async def log_dir(runtime: Runtime, path: str, partitions: list[PartitionStatus]) -> LogDirStatus:
    """The directory with its volume's space; it is offline if that cannot be told."""
    try:
        volume = await runtime.run_blocking(runtime.disk.space, path)
    except OSError as failure:
        log.error("%s does not tell its space: %s", path, failure)
        return LogDirStatus(path, -1, -1, partitions, offline=True)
    return LogDirStatus(path, volume.total, volume.free, partitions)
