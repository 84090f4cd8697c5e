"""Which machine may lose power next, so that nothing that was acknowledged is lost for good.

Records are not synced before they are acknowledged: as in Kafka, they may be lost where several who
hold them lose power before the first has caught up again. So no machine loses power

- while another one that did is on its way back: until the process that its broker runs as now is
  registered, the metadata goes on naming its replicas in sync;
- while a partition has nobody in sync elsewhere whose disk works;
- while nobody can say who is in sync: no controller serves, the one that does was deposed without
  knowing it, or what it has decided is not committed yet.
"""

from __future__ import annotations

from typing import Any

from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import CONTROLLER
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.world import Machine, Resident


class PowerLosses:
    """Remembers who has lost power, and decides about the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._returning: dict[int, None] = {}
        """Brokers whose machines lost power, until the metadata knows of it."""
        self._written_epoch = 0
        """The newest controller epoch in which a voter took anything."""
        cluster.world.observers.append(self._answered)

    def _answered(
        self, _resident: Resident, method: str, args: tuple[Any, ...], _answer: object
    ) -> None:
        if method == "voter_append":
            self._written_epoch = max(self._written_epoch, args[0].epoch)

    def lost(self, machine: Machine) -> None:
        """A machine loses power."""
        self._returning[self._cluster.machines.index(machine)] = None

    def may_lose(self, machine: Machine) -> bool:
        """Whether a machine may lose power now."""
        image = self._committed_image()
        if image is None:
            return False
        self._forget_returned(image)
        if self._returning:
            return False
        unsafe = {
            number
            for number, one in enumerate(self._cluster.machines)
            if one is machine or one.disk.failed or one.disk.full
        }
        return all(
            set(state.isr) - unsafe for topic in image.topics.values() for state in topic.partitions
        )

    def _committed_image(self) -> MetadataImage | None:
        """The metadata, if it is certain that nothing else counts."""
        for one in self._cluster.of_role(CONTROLLER):
            term = one.actor._term
            if term is None or term.quorum.epoch < self._written_epoch:
                continue
            image: MetadataImage = term.machine.image
            if term.committed == image.offset:
                return image
        return None

    def _forget_returned(self, image: MetadataImage) -> None:
        """The controller takes who crashed out of sync when it registers."""
        for broker_id, broker in self._cluster.brokers():
            known = image.brokers.get(broker_id)
            if known is not None and known.incarnation == broker._incarnation:
                self._returning.pop(broker_id, None)
