"""Checks the metadata of a simulation: what voters hold and promise, and what brokers get."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from raylog.actors.broker.rules.voter import VoterRules
from raylog.actors.controller.messages import MetadataUpdate
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Record, encode_record
from raylog.actors.metadata.voting import VoterAppend, VoterAppended
from raylog.actors.names import BROKER
from raylog.simulation.agreement import GivenOut, mismatch
from raylog.simulation.cluster import Cluster
from raylog.simulation.properties import Checks, Property
from raylog.simulation.world import Resident


class QuorumObserver:
    """Checks the metadata log from outside, without changing the run."""

    def __init__(self, cluster: Cluster, checks: Checks) -> None:
        self._cluster = cluster
        self._hold = checks.hold
        self.is_suspended = False
        """Set while what happens is not part of the history."""
        self._committed: dict[int, Record] = {}
        self.given_out = GivenOut()
        self._images: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        cluster.world.observers.append(self._answered)
        # A voter whose directory is lost has forgotten its promises.
        cluster.world.lost_directory.append(lambda one: self._promised.pop(one.name, None))

    # ---- answers of actors -------------------------------------------------------------------

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
        """Check that records given out are committed."""
        if update.from_offset < 0:
            return
        term = controller.actor._term
        epoch = math.inf if term is None else term.quorum.epoch
        for at, record in enumerate(update.records, update.from_offset):
            before = self._committed.setdefault(at, record)
            self._hold(Property.METADATA_ONCE, before == record, at, before, record)
            self.given_out.add(at, encode_record(record), epoch)

    def _appended(self, asked: VoterAppend, answer: VoterAppended) -> None:
        """Check, after an append to a voter, that a majority still holds all committed records."""
        if answer.matched and any(not self.given_out.counts(entry) for entry in asked.entries):
            self._check_majority(f"after an append of controller epoch {asked.epoch}")

    # ---- at checkpoints --------------------------------------------------------------------

    def look(self) -> None:
        """Check every living broker."""
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
        if voter is not None and voter.is_at_rest:
            name = f"{resident.machine.name} {resident.machine.disk.boots}"
            promised = voter.state().promised_epoch
            known = self._promised.get(resident.machine.name, 0)
            self._hold(Property.CONTROLLER_PROMISED, promised >= known, name, known, promised)
            self._promised[resident.machine.name] = promised

    def _check_majority(self, when: str) -> None:
        """Check that a majority of the voters holds everything committed.

        Absent voters may hold it.
        """
        voters = self._cluster.newest_image().voters
        lacking = sum(
            not self.given_out.is_whole(copy.copy)
            for copy in self._copies()
            if (copy.broker_id, copy.directory_id) in voters
        )
        few = 2 * lacking < len(voters) or not voters
        self._hold(Property.VOTERS_AGREE, few, f"{lacking} of {len(voters)} lack records", when)

    def _copies(self) -> list[VoterRules]:
        """The copies of living brokers, including those that do not vote yet or any more."""
        actors = [one.actor for one in self._cluster.of_role(BROKER)]
        return [actor._voter.rules for actor in actors if actor._voter is not None]

    def _compare_voters(self) -> None:
        """Check that voters differ only in entries that a deposed controller left with some."""
        copies = self._copies()
        for voter in copies:
            at = self.given_out.missing(voter.copy)
            self._hold(
                Property.VOTERS_AGREE,
                at is None,
                f"voter {voter.broker_id}, whose last epoch is {voter.copy.last_epoch}, lacks",
                at,
            )
        for one, other in combinations(copies, 2):
            differ = mismatch(one.copy.entries, other.copy.entries)
            self._hold(Property.VOTERS_AGREE, differ is None, *(differ or ()))
