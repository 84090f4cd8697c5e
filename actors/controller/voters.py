"""Who holds the metadata log: one voter more, or one less, at a time (KIP-853).

| state    | entered by                           | left by                                      |
|----------|--------------------------------------|----------------------------------------------|
| settled  | a controller that serves; a commit   | an add or a removal that is accepted         |
| joining  | an accepted add                      | its copy is level: the set is appended;      |
|          |                                      | it cannot be brought level: settled          |
| changing | a set appended: it is in force       | its commit: settled; else the epoch ends     |

A controller serves only once the first record of its own epoch is committed, so that no set is
appended before that, and one change waits for the commit of the one before. Sets in force at any
two copies therefore differ by one voter at most, whose majorities have a voter in common. A set
is accepted only if a majority of it follows this controller: else nothing would be committed any
more, this change included.

The controller is no voter itself: the voter on its own node is removed like any other.

Brokers come to vote by themselves (`wanted`) until there are three, once they have been live for a
while: one that comes and goes is not taken. After a change that failed nothing is tried for a
while either. Whom somebody has removed by hand stays out until he is added by hand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from raylog.actors.controller.api import AddVoter, RemoveVoter
from raylog.actors.controller.decision import Decision
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Voters, VotersChanged
from raylog.wire.errors import (
    DuplicateVoter,
    InvalidRequest,
    RequestTimedOut,
    VoterNotFound,
)

Voter = tuple[int, str]
VOTERS_MAX = 5
"""Every record goes to all of them before it counts with most."""
VOTERS_WANTED = 3
"""Where they join by themselves (controller.quorum.auto.join.enable)."""
JOIN_TIMEOUT_MS = 10_000
WANTED_AGAIN_MS = 30_000
"""Between a change that failed and the next one that nobody asked for."""


class VoterControl:
    """Decides about voters against the image, whose set is the one in force."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._joining: Voter | None = None
        self._changed_below = 0
        """Where the metadata ends with the last change (exclusive)."""
        self._wanted_from_ms = 0
        """Before that nothing is changed that nobody asked for."""

    def begin_joining(self, asked: AddVoter, committed: int) -> None:
        """Accept an add: the copy is to be brought level. `joined` or `gave_up` follows.

        Raises DuplicateVoter, RequestTimedOut while another change is under way or if there is no
        such copy, InvalidRequest if there are enough voters.
        """
        voter = (asked.broker_id, asked.directory_id)
        self._require_settled(committed)
        if any(broker_id == asked.broker_id for broker_id, _ in self._image.voters):
            raise DuplicateVoter(
                f"The voter id for {_name(voter)} is already part of the set of voters "
                f"{_names(self._image.voters)}."
            )
        if len(self._image.voters) >= VOTERS_MAX:
            raise InvalidRequest(f"There are {VOTERS_MAX} voters, which is the most there can be.")
        self._require_present(voter)
        self._joining = voter

    def gave_up(self) -> None:
        """The copy that was to join is not level."""
        self._joining = None

    def joined(self, following: Collection[Voter]) -> Decision[None]:
        """The copy is level: let it vote. `following` are the voters that follow the controller."""
        assert self._joining is not None, "a copy is brought level before it votes"
        joining, self._joining = self._joining, None
        kept_out = tuple(one for one in self._image.kept_out if one != joining[0])
        voters = (*self._image.voters, joining)
        return self._changed(voters, kept_out, {*following, joining})

    def remove(
        self, asked: RemoveVoter, committed: int, following: Collection[Voter]
    ) -> Decision[None]:
        """Take the vote from a copy; its broker stays out if the copy was not lost.

        Raises VoterNotFound, for the last voter too, RequestTimedOut while another change is under
        way, InvalidRequest if too few of those that stay follow.
        """
        voter = (asked.broker_id, asked.directory_id)
        self._require_settled(committed)
        voters = self._image.voters
        if voter not in voters or len(voters) == 1:
            raise VoterNotFound(
                f"Cannot remove voter {_name(voter)} from the set of voters {_names(voters)}"
            )
        broker = self._image.brokers.get(asked.broker_id)
        is_lost = broker is not None and broker.directory_id != asked.directory_id
        kept_out = {*self._image.kept_out, *(() if is_lost else (asked.broker_id,))}
        left = tuple(one for one in voters if one != voter)
        return self._changed(left, tuple(sorted(kept_out)), following)

    def postpone(self, now_ms: int) -> None:
        """A change that nobody asked for has failed: the next one has time."""
        self._wanted_from_ms = now_ms + WANTED_AGAIN_MS

    def wanted(
        self, committed: int, settled: Mapping[int, str], now_ms: int
    ) -> AddVoter | RemoveVoter | None:
        """The next change where voters join by themselves; None while one is under way.

        A voter leaves whose broker lives in another directory. There are to be three voters:
        two are added where there are three brokers for it, for of two none may be lost. `settled`
        are brokers that have been live for a while, with their directories.
        """
        if self._is_changing(committed) or now_ms < self._wanted_from_ms:
            return None
        live = dict(settled)
        for broker_id, directory_id in self._image.voters:
            if len(self._image.voters) > 1 and live.get(broker_id, directory_id) != directory_id:
                return RemoveVoter(broker_id, directory_id)
        for broker_id in (*(one for one, _ in self._image.voters), *self._image.kept_out):
            live.pop(broker_id, None)
        voters = len(self._image.voters)
        if voters < VOTERS_WANTED <= voters + len(live):
            first = min(live)
            return AddVoter(first, live[first], JOIN_TIMEOUT_MS)
        return None

    def _changed(
        self, voters: Voters, kept_out: tuple[int, ...], following: Collection[Voter]
    ) -> Decision[None]:
        present = sum(one in following for one in voters)
        if present * 2 <= len(voters):
            raise InvalidRequest(
                f"Of the voters {_names(voters)} {present} would follow the controller, which is "
                "no majority: the metadata could not be changed any more."
            )
        self._changed_below = self._image.offset + 1
        return Decision([VotersChanged(voters, kept_out)], None)

    def _is_changing(self, committed: int) -> bool:
        return self._joining is not None or self._changed_below > committed

    def _require_settled(self, committed: int) -> None:
        if self._is_changing(committed):
            raise RequestTimedOut(
                "Request timed out waiting for leader to handle previous voter change request."
            )

    def _require_present(self, voter: Voter) -> None:
        """A broker with this directory is known; whether it answers its catching up will show."""
        broker = self._image.brokers.get(voter[0])
        if broker is None:
            raise RequestTimedOut(
                f"Aborted add voter operation for {_name(voter)} since broker {voter[0]} is not "
                "registered"
            )
        if broker.directory_id != voter[1]:
            raise RequestTimedOut(
                f"Aborted add voter operation for {_name(voter)} since it is lagging behind: "
                f"broker {voter[0]} has the directory {broker.directory_id}"
            )


def _name(voter: Voter) -> str:
    """A voter as Kafka writes it."""
    return f"ReplicaKey(id={voter[0]}, directoryId={voter[1]})"


def _names(voters: Voters) -> str:
    return f"[{', '.join(map(_name, voters))}]"
