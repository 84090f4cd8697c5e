"""Decides which machine may lose data next without losing acknowledged records for good.

*Power.* Records are acknowledged before they are synced. As in Kafka, they may be lost if several
machines that hold them lose power before the first has caught up again. So no machine loses power

- while another one that lost something is returning: the metadata names its replicas in sync until
  its broker's current process has registered and reported its logs;
- while a partition has no other in-sync replica on a working disk;
- while the in-sync replicas are not certain: no controller serves, the serving one was deposed
  without knowing it, or some of its decisions are not committed yet.

*Directories.* With min.insync.replicas 2 every acknowledged record is in two places, so one machine
may lose it. The next one may, when the first is in sync everywhere again.

*Metadata.* A majority of the other voters must hold all of it. An older copy comes back only if it
has the voter's last promise, because no other rule of Raft can detect a broken promise.
"""

from __future__ import annotations

from typing import Any

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import CONTROLLER
from raylog.simulation.agreement import GivenOut
from raylog.simulation.cluster import Cluster
from raylog.simulation.world import Machine, Resident

VOTERS_MIN = 3
"""With fewer voters none may lose its copy."""


class Losses:
    """Tracks which machines have lost something, and decides whether the next one may."""

    def __init__(self, cluster: Cluster, given_out: GivenOut) -> None:
        self._cluster = cluster
        self._given_out = given_out
        self._returning: dict[int, None] = {}
        """Brokers whose machines lost something, until the metadata shows it."""
        self._behind: dict[int, None] = {}
        """Brokers whose machines lost something, until they are in sync everywhere."""
        self._written_epoch = 0
        """The newest controller epoch in which a voter accepted an append."""
        cluster.world.observers.append(self._answered)

    def _answered(
        self, _resident: Resident, method: str, args: tuple[Any, ...], _answer: object
    ) -> None:
        if method == "voter_append":
            self._written_epoch = max(self._written_epoch, args[0].epoch)

    def lost(self, machine: Machine) -> None:
        """Note that a machine loses something."""
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

    def may_lose_directory(self, machine: Machine) -> bool:
        """Whether a machine may lose records of partitions now: others must be able to lead them.

        Nobody can if a replica was fenced when the topic was created and is not in sync yet.
        """
        image = self._committed_image()
        if image is None:
            return False
        self._forget_returned(image)
        alone = {self._cluster.machines.index(machine)}
        return (
            not self._behind
            and not any(one.disk.failed for one in self._cluster.machines)
            and all(
                ({*state.isr, *state.elr} or {*state.last_known_elr}) != alone
                for topic in image.topics.values()
                for state in topic.partitions
            )
        )

    def may_lose_metadata(self, machine: Machine, promised: int | None = None) -> bool:
        """Whether a machine may lose its copy of the metadata log now.

        `promised` is the last controller epoch promised by the older copy that replaces it.
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
        """Whether a voter's copy counts and has everything that was committed."""
        if broker is None or broker._voter is None:
            return False
        voter = broker._voter.rules
        registered = image.brokers.get(voter.broker_id)
        its_own = registered is not None and registered.directory_id == voter.directory_id
        is_whole = voter.copy.next_offset >= image.offset and self._given_out.is_whole(voter.copy)
        return its_own and is_whole

    # ---- recovered machines --------------------------------------------------------------

    def _committed_image(self) -> MetadataImage | None:
        """The metadata if it is certain to be current and committed, else None."""
        for one in self._cluster.of_role(CONTROLLER):
            term = one.actor._term
            if term is None or term.quorum.epoch < self._written_epoch:
                continue
            image: MetadataImage = term.machine.image
            if term.committed == image.offset:
                return image
        return None

    def _forget_returned(self, image: MetadataImage) -> None:
        """Forget brokers that have registered again, and those that are back in sync."""
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
    """The last controller epoch that a broker's voter has promised; -1 if it is unknown."""
    voter = None if broker is None else broker._voter
    return -1 if voter is None else voter.rules.copy.promised_epoch
