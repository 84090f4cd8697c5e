"""The controller's side of the metadata log: sends the requests of the rules to the voters.

`rules.quorum` decides who wins an epoch and what is committed.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the controller's shell: callers wait for a majority
import logging
from collections.abc import Callable, Iterable
from functools import partial

from raylog.actors.controller.rules.quorum import (
    Ask,
    AskHistory,
    AskLog,
    AskState,
    InstallSnapshot,
    QuorumLost,
    QuorumRules,
    Ready,
    Request,
    Role,
)
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.records import Voters
from raylog.actors.metadata.voting import JoinVoters, NewEpoch, VoterAppend
from raylog.actors.names import broker_name
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout, Runtime, Timer
from raylog.wire.errors import FencedLeaderEpoch, KafkaError

log = logging.getLogger(__name__)
_LOST = (PeerLost, PeerTimeout, ActorGone, KafkaError)
CALL_TIMEOUT_MS = 5_000
INSTALL_TIMEOUT_MS = 30_000
"""Timeout for a voter to write a snapshot. Its disk may be slow; it accepts entries meanwhile."""
STATE_TIMEOUT_MS = 1_500
"""Timeout for a voter to report its state, which it does at once."""
MOMENT_MS = 250
"""Timeout for a voter that hangs, once a majority has answered."""


class VoterQuorum:
    """The voters, called through the brokers that host them."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_id: str,
        broker_ids: Iterable[int],
        name: str = "",
        *,
        moment_ms: int = MOMENT_MS,
        above_epoch: int = 0,
    ) -> None:
        self._begun = partial(QuorumRules, cluster_id, tuple(broker_ids), name, above_epoch)
        self.rules = self._begun()
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._moment_ms = moment_ms
        self._moment: Timer | None = None
        self._progressed = asyncio.Event()

    @property
    def epoch(self) -> int:
        """The controller epoch that was won."""
        return self.rules.epoch

    @property
    def voters(self) -> Voters:
        """The current voter set."""
        return self.rules.voters

    @property
    def adopted(self) -> tuple[LogSnapshot, list[LogEntry]]:
        """The log at takeover: a snapshot and the entries after it."""
        return self.rules.log.snapshot, self.rules.log.entries

    @property
    def next_offset(self) -> int:
        """The offset after the last entry."""
        return self.rules.log.next_offset

    @property
    def supported_ms(self) -> float:
        """The time at which a majority was last known to follow this controller."""
        return self.rules.supported_ms(self._runtime.monotonic_ms())

    def progress(self) -> list[tuple[int, str, int, int, int]]:
        """Return the progress of each voter.

        Each item is (broker id, directory id, log end offset, last contact, last caught up). Times
        are wall-clock ms, -1 if unknown.
        """
        ago_ms = self._runtime.now_ms() - self._runtime.monotonic_ms()

        def wall(at_ms: float) -> int:
            return -1 if at_ms < 0 else round(at_ms + ago_ms)

        return [
            (*one.key, one.next_offset, wall(one.contact_ms), wall(one.level_ms))
            for one in self.rules.followers
        ]

    def probe(self) -> None:
        """Ask the voters whether they still follow."""
        self._carry_out(self.rules.probe(self._runtime.monotonic_ms()))

    async def take_over(self) -> None:
        """Win an epoch and adopt the longest log; raises QuorumLost, MetadataLost.

        A cluster is founded only if no broker's directory has ever known a cluster. The metadata is
        lost if no voter has any, or if without the voters with new directories there is no
        majority.
        """
        self.rules = self._begun()
        self._carry_out(self.rules.begin(self._runtime.monotonic_ms()))
        await self._until(lambda: self.rules.role in (Role.LEADING, Role.OVER))
        if self.rules.failure is not None:
            raise self.rules.failure

    async def append(self, entries: list[LogEntry]) -> None:
        """Append entries; return when a majority has synced them. Raises QuorumLost.

        Only one append runs at a time. The other voters catch up in the background.
        """
        rules = self.rules
        self._carry_out(rules.append(entries, self._runtime.monotonic_ms()))
        target = rules.log.next_offset
        await self._until(lambda: rules.committed >= target or not rules.takes_entries)
        if rules.committed < target:
            raise QuorumLost("no majority of the voters takes the controller's records")

    async def bring_level(self, broker_id: int, directory_id: str) -> bool:
        """Let a copy that is not a voter follow this controller until it has caught up.

        Return False if the copy knows a later controller, whose epoch must be exceeded; this
        controller then no longer serves. Raises QuorumLost if the copy cannot catch up.
        """
        rules = self.rules
        self._carry_out(rules.bring_level(broker_id, directory_id, self._runtime.monotonic_ms()))
        joining = rules.joining
        assert joining is not None, "it has begun to join"
        await self._until(lambda: joining.failure is not None or rules.is_level(joining))
        if joining.failure is None:
            return True
        if joining.has_joined:
            raise QuorumLost(f"broker {broker_id} does not take the metadata log")
        if isinstance(joining.failure, FencedLeaderEpoch):
            return False
        raise QuorumLost(f"broker {broker_id} does not join: {joining.failure}")

    async def install_snapshot(self, snapshot: LogSnapshot) -> None:
        """Replace everything below a snapshot by it, here and on all voters that answer.

        The voters do this one after another, so that not all disks are busy at once.
        """
        for broker_id, request in self.rules.install(snapshot):
            try:
                await self._call(broker_id, request)
            except _LOST as lost:
                log.info("voter %d did not install the snapshot: %s", broker_id, lost)

    # ---- asking --------------------------------------------------------------------------

    def _carry_out(self, ready: Ready) -> None:
        """Send the requests of the rules to the voters."""
        if self._moment is not None:
            self._moment.cancel()
            self._moment = None
        if ready.moment:
            self._moment = self._runtime.call_later(self._moment_ms, self._moment_over)
        for ask in ready.asks:
            self._runtime.start(self._ask(self.rules, ask), f"voter {ask.broker_id}")
        self._progressed.set()

    def _moment_over(self) -> None:
        log.info("%d voters do not answer", self.rules.waiting)
        self._moment = None
        self._carry_out(self.rules.moment_over(self._runtime.monotonic_ms()))

    async def _ask(self, rules: QuorumRules, ask: Ask) -> None:
        try:
            answer = await self._call(ask.broker_id, ask.request)
        except _LOST as lost:
            log.info("a request to voter %d failed: %s", ask.broker_id, lost)
            ready = rules.failed(ask, lost, self._runtime.monotonic_ms())
        else:
            ready = rules.answered(ask, answer, self._runtime.monotonic_ms())
        if rules is self.rules:
            self._carry_out(ready)

    async def _call(self, broker_id: int, request: Request) -> object:
        """Send a request to a voter, and return its response."""
        own, peer = self._runtime, broker_name(self._cluster_id, broker_id)
        match request:
            case AskState():
                return await call(own, peer, Broker.voter_state, timeout_ms=STATE_TIMEOUT_MS)
            case AskHistory():
                return await call(own, peer, Broker.history, timeout_ms=STATE_TIMEOUT_MS)
            case NewEpoch():
                return await call(
                    own, peer, Broker.voter_new_epoch, request, timeout_ms=CALL_TIMEOUT_MS
                )
            case AskLog():
                return await call(
                    own, peer, Broker.voter_fetch, *request, timeout_ms=CALL_TIMEOUT_MS
                )
            case JoinVoters():
                return await call(own, peer, Broker.voter_join, request, timeout_ms=CALL_TIMEOUT_MS)
            case VoterAppend():
                return await call(
                    own, peer, Broker.voter_append, request, timeout_ms=CALL_TIMEOUT_MS
                )
            case InstallSnapshot():
                return await call(
                    own, peer, Broker.voter_install, *request, timeout_ms=INSTALL_TIMEOUT_MS
                )

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._progressed.clear()
            await self._progressed.wait()
