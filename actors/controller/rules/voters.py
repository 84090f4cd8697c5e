"""Changes the voter set of the metadata log by one voter at a time (KIP-853).

| state    | entered by                           | left by                                      |
|----------|--------------------------------------|----------------------------------------------|
| settled  | a controller that serves; a commit   | an accepted add or removal                   |
| joining  | an accepted add                      | the copy has caught up: the set is appended; |
|          |                                      | it cannot catch up: settled                  |
| changing | an appended set, which is in force   | its commit: settled; or the epoch ends       |

A controller serves only after the first record of its own epoch is committed, so no set is appended
before that, and a change waits until the previous one is committed. So the sets in force at any two
copies differ by at most one voter, and their majorities overlap. A set is accepted only if a
majority of it follows this controller; otherwise nothing could be committed any more, including
this change.

The controller is not a voter: the voter on its own node is removed like any other.

Brokers become voters by themselves (`wanted`), up to three, once they have been live for a while.
After a failed change nothing is tried for a while. A voter that an operator has removed stays out
until an operator adds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from raylog.actors.controller.messages import AddVoter, RemoveVoter
from raylog.actors.controller.rules.decision import Decision
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
"""The most voters. More would slow every change down: each record is sent to all of them."""
VOTERS_WANTED = 3
"""Number of voters up to which brokers join automatically (controller.quorum.auto.join.enable)."""
JOIN_TIMEOUT_MS = 10_000
WANTED_AGAIN_MS = 30_000
"""Delay in ms after a failed change before the next automatic one."""


class VoterControl:
    """Decides about voters from the image, which has the set in force."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._joining: Voter | None = None
        self._changed_below = 0
        """The end (exclusive) of the metadata that includes the last change."""
        self._wanted_from_ms = 0
        """The time until which no automatic change is made."""

    def begin_joining(self, request: AddVoter, committed: int) -> None:
        """Accept a new voter: the copy starts to catch up. `joined` or `gave_up` follows.

        Raises DuplicateVoter, RequestTimedOut if another change is in progress or there is no such
        copy, and InvalidRequest if there are enough voters.
        """
        voter = (request.broker_id, request.directory_id)
        self._require_settled(committed)
        if any(broker_id == request.broker_id for broker_id, _ in self._image.voters):
            raise DuplicateVoter(
                f"The voter id for {_name(voter)} is already part of the set of voters "
                f"{_names(self._image.voters)}."
            )
        if len(self._image.voters) >= VOTERS_MAX:
            raise InvalidRequest(f"There are {VOTERS_MAX} voters, which is the most there can be.")
        self._require_present(voter)
        self._joining = voter

    def gave_up(self) -> None:
        """Give up adding a voter: the copy has not caught up."""
        self._joining = None

    def joined(self, following: Collection[Voter]) -> Decision[None]:
        """Make the copy a voter, now that it has caught up.

        `following` are the voters that follow the controller.
        """
        assert self._joining is not None, "a copy is brought level before it votes"
        joining, self._joining = self._joining, None
        kept_out = tuple(one for one in self._image.kept_out if one != joining[0])
        voters = (*self._image.voters, joining)
        return self._changed(voters, kept_out, {*following, joining})

    def remove(
        self, request: RemoveVoter, committed: int, following: Collection[Voter]
    ) -> Decision[None]:
        """Remove a voter. Unless its copy was lost, its broker does not rejoin automatically.

        Raises VoterNotFound, also for the last voter, RequestTimedOut if another change is in
        progress, and InvalidRequest if too few of the remaining voters follow.
        """
        voter = (request.broker_id, request.directory_id)
        self._require_settled(committed)
        voters = self._image.voters
        if voter not in voters or len(voters) == 1:
            raise VoterNotFound(
                f"Cannot remove voter {_name(voter)} from the set of voters {_names(voters)}"
            )
        broker = self._image.brokers.get(request.broker_id)
        is_lost = broker is not None and broker.directory_id != request.directory_id
        kept_out = {*self._image.kept_out, *(() if is_lost else (request.broker_id,))}
        left = tuple(one for one in voters if one != voter)
        return self._changed(left, tuple(sorted(kept_out)), following)

    def postpone(self, now_ms: int) -> None:
        """Delay the next automatic change, after one has failed."""
        self._wanted_from_ms = now_ms + WANTED_AGAIN_MS

    def wanted(
        self, committed: int, settled: Mapping[int, str], now_ms: int
    ) -> AddVoter | RemoveVoter | None:
        """Return the next automatic change; None while a change is in progress.

        A voter whose broker now has another directory is removed. Voters are added, up to three,
        only if there are enough brokers for three, because a quorum of two tolerates no loss.
        `settled` are the brokers that have been live for a while, with their directories.
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
                "no majority: no metadata could be changed any more."
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
        """Check that a broker with this directory is registered.

        Whether it responds shows when it catches up.
        """
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
    """Format a voter as Kafka does."""
    return f"ReplicaKey(id={voter[0]}, directoryId={voter[1]})"


def _names(voters: Voters) -> str:
    return f"[{', '.join(map(_name, voters))}]"
