"""Faults that lose data directories, in whole or in part, or restore an older copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raylog.actors.names import BROKER
from raylog.simulation.damage import Damage
from raylog.simulation.losses import Losses
from raylog.simulation.volume import Directory
from raylog.simulation.world import Machine

TOPICS, METADATA = "topics", "metadata"
SMALL_FILES = ("meta.json", "state.json", "followed.json")
OUTAGES_S = (0.2, 1.0, 5.0)
COPIES_MAX = 3
"""Copies kept per machine. The oldest is dropped first."""


@dataclass(slots=True)
class _Copy:
    """A copy of a data directory."""

    taken_s: float
    promised: int
    """The last controller epoch that its voter had promised; 0 if it was no voter."""
    tree: Directory


class DirectoryFaults:
    """Removes directories of stopped machines, as far as the guarantees of `Losses` allow."""

    def __init__(
        self,
        damage: Damage,
        losses: Losses,
        stop: Callable[[Machine, float, Callable[[], None]], None],
    ) -> None:
        """`stop` stops a machine for some seconds and calls its last argument meanwhile."""
        self._do = damage
        self._losses = losses
        self._stop = stop
        self._copies: dict[str, list[_Copy]] = {}
        """Copies by machine."""

    def copy(self) -> None:
        """Keep a copy of a data directory as it is now."""
        machine = self._do.machine()
        tree = machine.disk.copy_of(self._path(machine))
        if tree is None:
            return
        broker = self._do.on(machine, BROKER)
        voter = None if broker is None else broker.actor._voter
        promised = 0 if voter is None else voter.rules.copy.promised_epoch
        copies = self._copies.setdefault(machine.name, [])
        copies.append(_Copy(self._do.world.loop.time(), promised, tree))
        del copies[:-COPIES_MAX]
        self._do.tell(f"the directory of {machine.name} is copied")

    def lose(self) -> None:
        """Restart a machine without a directory."""
        self._replace(None, self._do.machine())

    def lose_alone(self) -> None:
        """Lose the directory of the only in-sync replica. The other replica has all that counts.

        The other one is down for longer than its session, so it is out of sync but eligible.
        """
        pairs = [
            (state.leader, other)
            for topic in self._do.cluster.newest_image().topics.values()
            for state in topic.partitions
            for other in state.replicas
            if len(state.isr) == len(state.replicas) == 2 and other != state.leader
        ]
        if not pairs:
            return
        leader, other = (self._do.cluster.machines[one] for one in self._do.random.choice(pairs))
        if other.up:
            away_s = self._do.random.uniform(4, 6)
            self._do.tell(f"{other.name} is away for {away_s:.1f} s")
            self._stop(other, away_s, lambda: None)
            self._do.later(away_s - 1, lambda: self._replace(None, leader))

    def restore(self) -> None:
        """Restart a machine with an older copy of a directory."""
        copied = [one for one in self._do.cluster.machines if self._copies.get(one.name)]
        if copied:
            machine = self._do.random.choice(copied)
            self._replace(self._do.random.choice(self._copies[machine.name]), machine)

    def _replace(self, copy: _Copy | None, machine: Machine) -> None:
        what = self._do.random.choice(("all", METADATA, TOPICS, "small files"))
        if copy is None and what == "small files":
            what = "all"  # without them the broker refuses the directory
        touches_metadata = what in ("all", METADATA)
        promised = None if copy is None else copy.promised
        if touches_metadata and not self._losses.may_lose_metadata(machine, promised):
            return
        if self._do.is_over or not (machine.up and self._losses.may_lose_directory(machine)):
            return
        self._losses.lost(machine)
        old = "" if copy is None else f" of second {copy.taken_s:.1f}"
        verb = "loses" if copy is None else "gets back"
        self._do.tell(f"{machine.name} {verb} its directory{old}: {what}")
        outage_s = self._do.random.choice(OUTAGES_S) * self._do.random.random() + 0.1
        self._stop(machine, outage_s, lambda: self._put(machine, what, copy))

    def _put(self, machine: Machine, what: str, copy: _Copy | None) -> None:
        """Replace a directory, or a part of it, by a copy, or remove it."""
        disk, path = machine.disk, self._path(machine)
        tree = None if copy is None else copy.tree
        if what == "all":
            disk.put_back(path, tree)
        elif what == "small files":
            assert tree is not None, "without them a directory is nobody's"
            for name in SMALL_FILES:
                disk.put_back(f"{path}/{name}", tree.names.get(name))
        elif what == METADATA:
            found = None if tree is None else tree.names.get(METADATA)
            disk.put_back(f"{path}/{METADATA}", found)
        else:
            self._put_partition(machine, tree)
        for tell in self._do.world.lost_directory:
            tell(machine)

    def _put_partition(self, machine: Machine, tree: Directory | None) -> None:
        """Do the same with the directory of one partition."""
        disk, path = machine.disk, f"{self._path(machine)}/{TOPICS}"
        topics = None if tree is None else tree.names.get(TOPICS)
        old = topics.names if isinstance(topics, Directory) else {}
        names = [one for one in disk.listdir(path) if tree is None or one in old]
        if names:
            name = self._do.random.choice(names)
            self._do.tell(f"it is {name}")
            disk.put_back(f"{path}/{name}", old.get(name))

    def _path(self, machine: Machine) -> str:
        number = self._do.cluster.machines.index(machine)
        return str(self._do.cluster.plan.brokers[number].directory)
