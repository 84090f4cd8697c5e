"""What lies on the disks of a cluster, for a look whether anything of it was removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raylog.actors.broker.directories import is_partition
from raylog.actors.simulation.clients import ACKS_ALL, Ledger
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.directories import TOPICS
from raylog.actors.simulation.disk import SimDisk
from raylog.actors.simulation.properties import Checks, Property
from raylog.actors.simulation.world import Machine
from raylog.storage.layout import LOG_SUFFIX
from raylog.storage.scan import scan
from raylog.wire.records import decode_batch


class Kept:
    """The acknowledged records in every partition's directory, as it is now."""

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        ledgers: Sequence[Ledger],
        replaced: Sequence[Machine] = (),
    ) -> None:
        """Of the machines in `replaced` older copies are looked at, which may be cut."""
        self._hold = checks.hold
        self._told = {
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
        """Each of them is there still, under the directory's own name or that of a stray."""
        for (number, topics, name), (machine, before) in self._held.items():
            there = [one for one in machine.disk.listdir(topics) if one.startswith(name)]
            now = {value for one in there for value in values_in(machine.disk, f"{topics}/{one}")}
            gone = (before & self._told) - now
            self._hold(Property.COPIES_KEPT, not gone, f"broker {number}", name, "lacks", len(gone))


def _names(machine: Machine, topics: str) -> Iterator[str]:
    try:
        yield from filter(is_partition, machine.disk.listdir(topics))
    except FileNotFoundError:
        return


def values_in(disk: SimDisk, directory: str) -> set[bytes]:
    """The values of all records in a partition's directory, in segments set aside, too."""
    found: set[bytes] = set()
    for name in disk.listdir(directory):
        if LOG_SUFFIX in name:
            fd = disk.open(f"{directory}/{name}")
            for _, _, batch in scan(disk, fd, 0, disk.size(fd), check=True):
                found.update(record.value or b"" for record in decode_batch(batch))
            disk.close(fd)
    return found
