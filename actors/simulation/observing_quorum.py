"""Looks at the metadata of a simulation: what voters hold and promise, what brokers are given."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from raylog.actors.broker.voter import Voter
from raylog.actors.controller.api import MetadataUpdate
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.log import LogEntry
from raylog.actors.metadata.records import Record, encode_record
from raylog.actors.metadata.voting import VoterAppend, VoterAppended
from raylog.actors.names import BROKER
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.properties import Checks, Property
from raylog.actors.simulation.world import Resident


class QuorumObserver:
    """Checks the metadata log from outside, without changing the run."""

    def __init__(self, cluster: Cluster, checks: Checks) -> None:
        self._cluster = cluster
        self._hold = checks.hold
        self._committed: dict[int, Record] = {}
        self._encoded: list[bytes] = []
        """The same from offset 0 on, as far as there is no gap."""
        self._images: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        cluster.world.observers.append(self._answered)

    # ---- what actors answer each other -------------------------------------------------------

    def _answered(
        self, resident: Resident, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        if method == "follow":
            self._followed(answer)
        elif method == "voter_append":
            self._appended(args[0], answer)

    def _followed(self, update: MetadataUpdate) -> None:
        """Records that were given out are committed."""
        if update.from_offset < 0:
            return
        for at, record in enumerate(update.records, update.from_offset):
            before = self._committed.setdefault(at, record)
            self._hold(Property.METADATA_ONCE, before == record, at, before, record)
        while (record_there := self._committed.get(len(self._encoded))) is not None:
            self._encoded.append(encode_record(record_there))

    def _appended(self, asked: VoterAppend, answer: VoterAppended) -> None:
        """A voter has taken entries: if they are others than those that count, too few are left."""
        if answer.matched and any(not self._counts(entry) for entry in asked.entries):
            self._check_majority(f"after an append of controller epoch {asked.epoch}")

    def _counts(self, entry: LogEntry) -> bool:
        """Whether an entry is what was committed at its offset, if anything was."""
        known = self._encoded[entry.offset : entry.next_offset]
        return list(entry.records[: len(known)]) == known

    # ---- at checkpoints --------------------------------------------------------------------

    def look(self) -> None:
        """Look at every living broker."""
        for one in self._cluster.of_role(BROKER):
            self._look_at(one)
        self._check_majority("at a look")

    def _look_at(self, resident: Resident) -> None:
        image: MetadataImage = resident.actor._machine.image
        before = self._images.get(resident.ref.instance, 0)
        self._hold(Property.METADATA_PREFIX, image.offset >= before, resident.ref.name)
        self._images[resident.ref.instance] = image.offset
        voter = resident.actor._voter
        if voter is not None:
            name = f"{resident.machine.name} {resident.machine.disk.boots}"
            promised = voter.state().promised_epoch
            known = self._promised.get(resident.machine.name, 0)
            self._hold(Property.CONTROLLER_PROMISED, promised >= known, name, known, promised)
            self._promised[resident.machine.name] = promised

    def _check_majority(self, when: str) -> None:
        """A majority of the voters holds all that counts; who is not there may."""
        living = self._voters()
        voters = len(self._cluster.newest_image().voters)
        lacking = sum(not self._is_complete(voter) for voter in living)
        few = 2 * lacking < voters or not voters
        self._hold(Property.VOTERS_AGREE, few, f"{lacking} of {voters} lack records", when)

    def _is_complete(self, voter: Voter) -> bool:
        log = voter._log
        return log.next_offset >= len(self._encoded) and all(map(self._counts, log.entries))

    def _voters(self) -> list[Voter]:
        actors = [one.actor for one in self._cluster.of_role(BROKER)]
        return [actor._voter for actor in actors if actor._voter is not None]

    def compare_voters(self) -> None:
        """Voters hold the same entries as far as both go and as far as anything was given out."""
        committed = len(self._encoded)
        entries = [
            {one.offset: one for one in voter._log.entries if one.next_offset <= committed}
            for voter in self._voters()
        ]
        for one, other in pairwise(entries):
            for offset in one.keys() & other.keys():
                same = one[offset] == other[offset]
                self._hold(Property.VOTERS_AGREE, same, offset, one[offset], other[offset])
        self._check_majority("in the end")
