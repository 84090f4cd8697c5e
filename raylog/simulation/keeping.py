"""Checks that brokers do not remove what lies on their disks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raylog.actors.broker.rules.directories import is_partition
from raylog.simulation.clients import ACKS_ALL, Ledger
from raylog.simulation.cluster import Cluster
from raylog.simulation.directories import TOPICS
from raylog.simulation.disk import SimDisk
from raylog.simulation.properties import Checks, Property
from raylog.simulation.world import Machine
from raylog.storage.layout import LOG_SUFFIX
from raylog.storage.scan import scan
from raylog.wire.records import decode_batch


class Kept:
    """The acknowledged records in every partition's directory, as of now."""

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        ledgers: Sequence[Ledger],
        replaced: Sequence[Machine] = (),
    ) -> None:
        """Machines in `replaced` have older copies, whose logs may be truncated."""
        self._hold = checks.hold
        self._acknowledged = {
            value for one in ledgers if one.acks == ACKS_ALL for value in one.acknowledged
        }
        self._held = {
            (number, topics, name): (machine, values_in(machine.disk, f"{topics}/{name}"))
            for number, machine in enumerate(cluster.machines)
            if machine not in replaced
            for topics in [f"{cluster.plan.brokers[number].directory}/{TOPICS}"]
            for name in _names(machine, topics)
        }

    def compare(self) -> None:
        """Check that all of them still exist, in the same directory or a stray one."""
        for (number, topics, name), (machine, before) in self._held.items():
            there = [one for one in machine.disk.listdir(topics) if one.startswith(name)]
            now = {value for one in there for value in values_in(machine.disk, f"{topics}/{one}")}
            gone = (before & self._acknowledged) - now
            self._hold(Property.COPIES_KEPT, not gone, f"broker {number}", name, "lacks", len(gone))


def _names(machine: Machine, topics: str) -> Iterator[str]:
    try:
        yield from filter(is_partition, machine.disk.listdir(topics))
    except FileNotFoundError:
        return


def values_in(disk: SimDisk, directory: str) -> set[bytes]:
    """The values of all records in a partition's directory, including segments set aside."""
    found: set[bytes] = set()
    for name in disk.listdir(directory):
        if LOG_SUFFIX in name:
            fd = disk.open(f"{directory}/{name}")
            for _, _, batch in scan(disk, fd, 0, disk.size(fd), check=True):
                found.update(record.value or b"" for record in decode_batch(batch))
            disk.close(fd)
    return found
