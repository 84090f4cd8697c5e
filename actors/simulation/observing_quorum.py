"""Looks at the metadata of a simulation: what voters hold and promise, what brokers are given."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from raylog.actors.broker.voter import Voter
from raylog.actors.controller.api import MetadataUpdate
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Record, encode_record
from raylog.actors.metadata.voting import VoterAppend, VoterAppended
from raylog.actors.names import BROKER
from raylog.actors.simulation.agreement import GivenOut, mismatch
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.properties import Checks, Property
from raylog.actors.simulation.world import Machine, Resident


class QuorumObserver:
    """Checks the metadata log from outside, without changing the run."""

    def __init__(self, cluster: Cluster, checks: Checks) -> None:
        self._cluster = cluster
        self._hold = checks.hold
        self.is_suspended = False
        """Whether what happens is not the history that counts."""
        self._committed: dict[int, Record] = {}
        self.given_out = GivenOut()
        self._images: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        cluster.world.observers.append(self._answered)
        cluster.world.lost_directory.append(self._lost_directory)

    def _lost_directory(self, machine: Machine) -> None:
        """Its voter knows nothing of what it has promised."""
        self._promised.pop(machine.name, None)

    # ---- what actors answer each other -------------------------------------------------------

    def _answered(
        self, resident: Resident, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        if self.is_suspended:
            return
        if method == "follow":
            self._followed(resident, answer)
        elif method == "voter_append":
            self._appended(args[0], answer)

    def _followed(self, controller: Resident, update: MetadataUpdate) -> None:
        """Records that were given out are committed."""
        if update.from_offset < 0:
            return
        term = controller.actor._term
        epoch = math.inf if term is None else term.quorum.epoch
        for at, record in enumerate(update.records, update.from_offset):
            before = self._committed.setdefault(at, record)
            self._hold(Property.METADATA_ONCE, before == record, at, before, record)
            self.given_out.add(at, encode_record(record), epoch)

    def _appended(self, asked: VoterAppend, answer: VoterAppended) -> None:
        """A voter has taken entries: if they are others than those that count, too few are left."""
        if answer.matched and any(not self.given_out.counts(entry) for entry in asked.entries):
            self._check_majority(f"after an append of controller epoch {asked.epoch}")

    # ---- at checkpoints --------------------------------------------------------------------

    def look(self) -> None:
        """Look at every living broker."""
        for one in self._cluster.of_role(BROKER):
            self._look_at(one)
        self._check_majority("at a look")
        self._compare_voters()

    def _look_at(self, resident: Resident) -> None:
        image: MetadataImage = resident.actor._machine.image
        before = self._images.get(resident.ref.instance, 0)
        self._hold(Property.METADATA_PREFIX, image.offset >= before, resident.ref.name)
        self._images[resident.ref.instance] = image.offset
        voter = resident.actor._voter
        if voter is not None and _is_at_rest(voter):
            name = f"{resident.machine.name} {resident.machine.disk.boots}"
            promised = voter.state().promised_epoch
            known = self._promised.get(resident.machine.name, 0)
            self._hold(Property.CONTROLLER_PROMISED, promised >= known, name, known, promised)
            self._promised[resident.machine.name] = promised

    def _check_majority(self, when: str) -> None:
        """A majority of the voters holds all that counts; who is not there may."""
        voters = self._cluster.newest_image().voters
        lacking = sum(
            not self.given_out.is_whole(copy._log)
            for copy in self._copies()
            if (copy._broker_id, copy._directory_id) in voters
        )
        few = 2 * lacking < len(voters) or not voters
        self._hold(Property.VOTERS_AGREE, few, f"{lacking} of {len(voters)} lack records", when)

    def _copies(self) -> list[Voter]:
        """The copies of living brokers, those that vote no more or not yet among them."""
        actors = [one.actor for one in self._cluster.of_role(BROKER)]
        return [actor._voter for actor in actors if actor._voter is not None]

    def _compare_voters(self) -> None:
        """Voters differ only in what a controller that is over has left with some of them."""
        copies = self._copies()
        for voter in copies:
            at = self.given_out.missing(voter._log)
            self._hold(
                Property.VOTERS_AGREE,
                at is None,
                f"voter {voter._broker_id}, whose last epoch is {voter._log.last_epoch}, lacks",
                at,
            )
        for one, other in combinations(copies, 2):
            differ = mismatch(one._log.entries, other._log.entries)
            self._hold(Property.VOTERS_AGREE, differ is None, *(differ or ()))


def _is_at_rest(voter: Voter) -> bool:
    """Whether what a voter says of itself is durable: it writes nothing, and its disk took all."""
    return voter._failure is None and not voter._writing.locked()
