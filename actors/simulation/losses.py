"""Which machine may lose what next, so that nothing that was acknowledged is lost for good.

*Power.* Records are not synced before they are acknowledged: as in Kafka, they may be lost where
several who hold them lose power before the first has caught up again. So no machine loses power

- while another one that lost anything is on its way back: until the process that its broker runs as
  now is registered, and has reported its logs, the metadata goes on naming its replicas in sync;
- while a partition has nobody in sync elsewhere whose disk works;
- while nobody can say who is in sync: no controller serves, the one that does was deposed without
  knowing it, or what it has decided is not committed yet.

*Directories.* With min.insync.replicas 2 everything that was acknowledged is in two places, so one
may lose it: the next one when that is in sync everywhere again.

*Metadata.* A majority of the voters other than the one that loses its copy holds all of it. An
older copy comes back only if it has the voter's last promise: no other rule of Raft's can tell.
"""

from __future__ import annotations

from typing import Any

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import CONTROLLER
from raylog.actors.simulation.agreement import GivenOut
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.world import Machine, Resident

VOTERS_MIN = 3
"""Fewer cannot do without one."""


class Losses:
    """Remembers who has lost something, and decides about the next."""

    def __init__(self, cluster: Cluster, given_out: GivenOut) -> None:
        self._cluster = cluster
        self._given_out = given_out
        self._returning: dict[int, None] = {}
        """Brokers whose machines lost something, until the metadata knows of it."""
        self._behind: dict[int, None] = {}
        """The same, until they are in sync everywhere."""
        self._written_epoch = 0
        """The newest controller epoch in which a voter took anything."""
        cluster.world.observers.append(self._answered)

    def _answered(
        self, _resident: Resident, method: str, args: tuple[Any, ...], _answer: object
    ) -> None:
        if method == "voter_append":
            self._written_epoch = max(self._written_epoch, args[0].epoch)

    def lost(self, machine: Machine) -> None:
        """A machine loses something."""
        broker_id = self._cluster.machines.index(machine)
        self._returning[broker_id] = self._behind[broker_id] = None

    # ---- what may be lost ----------------------------------------------------------------

    def may_lose_power(self, machine: Machine) -> bool:
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

    def may_lose_directory(self) -> bool:
        """Whether a machine may lose what it holds of partitions now."""
        image = self._committed_image()
        if image is None:
            return False
        self._forget_returned(image)
        return not self._behind and not any(one.disk.failed for one in self._cluster.machines)

    def may_lose_metadata(self, machine: Machine, promised: int | None = None) -> bool:
        """Whether a machine may lose its copy of the metadata log now.

        `promised` is the last controller epoch that an older copy has promised, which comes in its
        place.
        """
        image = self._committed_image()
        if image is None or self._behind or len(image.voters) < VOTERS_MIN:
            return False
        brokers = dict(self._cluster.brokers())
        own_id = self._cluster.machines.index(machine)
        if promised is not None and promised != _promised(brokers.get(own_id)):
            return False
        others = [brokers.get(voter_id) for voter_id, _ in image.voters if voter_id != own_id]
        return all(self._holds_all(one, image) for one in others)

    def _holds_all(self, broker: BrokerActor | None, image: MetadataImage) -> bool:
        """Whether a voter's copy counts, and has all that was committed."""
        if broker is None or broker._voter is None:
            return False
        voter = broker._voter
        registered = image.brokers.get(voter._broker_id)
        its_own = registered is not None and registered.directory_id == voter._directory_id
        is_whole = voter._log.next_offset >= image.offset and self._given_out.is_whole(voter._log)
        return its_own and is_whole

    # ---- who is back ---------------------------------------------------------------------

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
        """The controller takes who lost something out of sync, by what it says of itself."""
        for broker_id, broker in self._cluster.brokers():
            known = image.brokers.get(broker_id)
            if known is None or known.incarnation != broker._incarnation:
                continue
            self._returning.pop(broker_id, None)
            if broker._machine.is_settled and all(
                broker_id in state.isr for _, _, state in image.partitions_on(broker_id)
            ):
                self._behind.pop(broker_id, None)


def _promised(broker: BrokerActor | None) -> int:
    """The last controller epoch that a broker's voter has promised; -1 if nobody can say."""
    voter = None if broker is None else broker._voter
    return -1 if voter is None else voter.promised_epoch
