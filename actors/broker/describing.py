"""Describes a broker's data directory."""

from __future__ import annotations

import logging

from raylog.actors.common_messages import LogDirStatus, PartitionStatus
from raylog.actors.runtime.base import Runtime

log = logging.getLogger(__name__)


async def log_dir(runtime: Runtime, path: str, partitions: list[PartitionStatus]) -> LogDirStatus:
    """Describe the directory and the space of its volume. If that is unknown, it is offline."""
    try:
        volume = await runtime.run_blocking(runtime.disk.space, path)
    except OSError as failure:
        log.error("the free space of %s is unknown: %s", path, failure)
        return LogDirStatus(path, -1, -1, partitions, offline=True)
    return LogDirStatus(path, volume.total, volume.free, partitions)
