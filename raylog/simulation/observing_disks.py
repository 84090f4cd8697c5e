"""Checks what logs find on their disks after a power loss: flushed data must be there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from raylog.actors.names import REPLICA
from raylog.simulation.cluster import Cluster
from raylog.simulation.disk import SimDisk
from raylog.simulation.properties import Checks, Property
from raylog.simulation.world import Machine
from raylog.storage.log import Log


class DiskObserver:
    """Notes how far logs were flushed when power was lost, and checks that when they are opened."""

    def __init__(self, cluster: Cluster, checks: Checks) -> None:
        self._cluster = cluster
        self._hold = checks.hold
        self._flushed: dict[tuple[SimDisk, str], int] = {}
        """By disk and directory, the exclusive end of what was durable."""
        cluster.world.losing_power.append(self._losing_power)

    def _losing_power(self, machine: Machine) -> None:
        """Note the flushed ends before a machine loses power."""
        for one in self._cluster.of_role(REPLICA):
            if one.machine is machine:
                for partition in one.actor._partitions.values():
                    self._flushed[machine.disk, partition.log.directory] = (
                        partition.log.state.recovery_point
                    )

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Check every log that is opened within the context."""
        original = Log.open

        def opened(_: type[Log], directory: Any, config: Any, disk: Any, /, **named: Any) -> Log:
            log = original(directory, config, disk, **named)
            self._opened(disk, log)
            return log

        with patch.object(Log, "open", classmethod(opened)):
            yield

    def _opened(self, disk: SimDisk, log: Log) -> None:
        flushed = self._flushed.pop((disk, log.directory), 0)
        if flushed and not disk.is_doubtful(log.directory):
            self._hold(
                Property.FLUSHED_KEPT,
                log.log_end_offset >= flushed,
                f"{log.directory} was flushed up to {flushed} and ends at {log.log_end_offset}",
            )
