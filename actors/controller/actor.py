"""Shell of the controller: wins an epoch, loads the metadata log, decides and appends.

The records of a decision are replayed at once, and the request is answered when a majority of the
voters has synced them. Decisions made in the meantime share the next append. If an append fails, it
is unknown what is committed: all waiting requests get NotController, and the controller starts
again with a new epoch and the log that the voters have. With several voters it serves only while a
majority follows it, and it ends for good when another controller has taken its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import TypeVar

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.counts import ControllerCounts, sample_term
from raylog.actors.controller.messages import (
    HEARTBEAT,
    AddVoter,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterReassignments,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    ConfigOutcome,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ElectOutcome,
    FeatureOutcome,
    Follow,
    IsrOutcome,
    MetadataUpdate,
    PartitionsOpened,
    ProducerIdBlock,
    QuorumDescription,
    ReassignOutcome,
    RegisterBroker,
    RemoveVoter,
    ReplicasLost,
    TopicOutcome,
    UpdateFeatures,
    WantedBrokers,
)
from raylog.actors.controller.quorum import MOMENT_MS, STATE_TIMEOUT_MS, VoterQuorum
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.decision_lines import decisions_of
from raylog.actors.controller.rules.machine import ControllerMachine
from raylog.actors.controller.rules.quorum import QuorumLost, RivalLeads
from raylog.actors.controller.term import RECENT_RECORDS_MAX, Term, finish
from raylog.actors.gc_tuning import stay
from raylog.actors.interceptors.learning import have_learned
from raylog.actors.message import taken
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.followed import Followed, MetadataLost, require_agreement
from raylog.actors.metadata.records import (
    BrokerUnwanted,
    BrokerWanted,
    Record,
    Voters,
    decode_record,
    encode_record,
)
from raylog.actors.metadata.voting import lease_ms
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import controller_name
from raylog.actors.peers.metadata_copies import EncodedSnapshot, SnapshotEncoder, sliced
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.wire.collecting import without_collector
from raylog.wire.errors import InvalidRequest, KafkaError, NotController, RequestTimedOut

log = logging.getLogger(__name__)
R = TypeVar("R")
RETRY_MS = (20, 1_000)
"""Shortest and longest delay before the next attempt to take over, in ms."""


class ControllerActor:
    """Serves the methods listed in `controller.messages`."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cluster_id: str,
        broker_ids: list[int],
        settings: dict[str, str],
        name: str = "",
    ) -> None:
        self._name = name or controller_name(cluster_id)
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._broker_ids = broker_ids
        self._settings = BrokerSettings(settings)
        self._lease_ms = lease_ms(self._settings.number("broker.heartbeat.interval.ms"))
        self._counts = ControllerCounts()
        self._term: Term | None = None
        self._reason = "it has not won an epoch yet"
        """Why it does not serve; valid while it does not."""
        self._lost: str | None = None
        """Why it can never serve, if the metadata is lost. Starting brokers are told this
        reason."""
        self._above_epoch = 0
        """The highest controller epoch that a broker is known to have followed."""
        self._moment_ms = MOMENT_MS
        """The timeout for a voter that hangs. It is longer after a failed attempt, because a slow
        voter may know a later epoch."""

    async def start(self) -> None:
        """Start trying to win an epoch. Until then requests get NotController."""
        self._runtime.start(self._lead_forever(), "lead")
        self._runtime.start(self._expire_forever(), "sessions")

    async def stop(self) -> None:
        """Stop serving. Waiting requests get NotController."""
        self._resign("the controller stops")

    def link_received(self, request: LinkRequest) -> None:
        """Handle a heartbeat, the only request that comes over links."""
        if request.kind != HEARTBEAT:
            request.fail(InvalidRequest(f"the controller serves no {request.kind} over links"))
            return
        self._runtime.start(self._heartbeat_over_link(request), HEARTBEAT)

    async def _heartbeat_over_link(self, request: LinkRequest) -> None:
        try:
            answer = await self.heartbeat(taken(BrokerHeartbeat, request.header))
        except KafkaError as refused:
            request.fail(refused)
        else:
            request.reply(list(answer))

    def link_lost(self, peer: int) -> None:
        """Do nothing: a controller keeps no state for links."""

    async def ping(self) -> dict[str, object]:
        """Report the process id, the epoch, and whether this controller serves."""
        epoch = -1 if self._term is None else self._term.quorum.epoch
        return {"pid": os.getpid(), "serves": self._term is not None, "epoch": epoch}

    async def metrics(self) -> ProcessMetrics:
        """Sample the counts of this process and, if it serves, the state of the cluster."""
        samples = Samples()
        self._counts.sample(samples)
        if (term := self._term) is not None:
            await sample_term(self._runtime, term, self._unsupported_ms(term), samples)
        return process_metrics(self._runtime, samples)

    # ---- leading -------------------------------------------------------------------------

    async def _lead_forever(self) -> None:
        wait_ms = RETRY_MS[0]
        while True:
            try:
                term = await self._take_over()
                wait_ms = RETRY_MS[0]
                await self._write_forever(term)
            except RivalLeads:
                await self._retire()
                return
            except MetadataLost as lost:
                if self._lost != str(lost):
                    log.error("%s", lost)
                self._lost = str(lost)
                self._resign(str(lost))
            except QuorumLost as lost:
                log.info("the controller of %s does not serve: %s", self._cluster_id, lost)
                self._lost = None
                self._resign(str(lost))
            # A random delay, so that two controllers do not take the epoch from each other forever.
            await self._runtime.sleep(self._runtime.random.uniform(0.5, 1) * wait_ms / 1000)
            wait_ms = min(wait_ms * 2, RETRY_MS[1])

    async def _retire(self) -> None:
        """End for good, because another controller serves. Voters start a new one when needed."""
        log.info("%s ends: another controller serves", self._name)
        await self._runtime.end_for_good(self._name)

    async def _take_over(self) -> Term:
        """Win an epoch, load the log, append the epoch's first records; then start to serve."""
        quorum = VoterQuorum(
            self._runtime,
            self._cluster_id,
            self._broker_ids,
            self._name,
            moment_ms=self._moment_ms,
            above_epoch=self._above_epoch,
        )
        self._moment_ms = STATE_TIMEOUT_MS
        await quorum.take_over()
        self._broker_ids = sorted({*self._broker_ids, *(one for one, _ in quorum.voters)})
        machine = ControllerMachine(self._cluster_id, self._settings, self._runtime.random)
        term = Term(machine, quorum, SnapshotEncoder(self._runtime, machine.image))
        await self._load(term)
        now_ms, silent_ms = self._session_ms(), int(quorum.rules.silent_ms)
        first = machine.took_over(quorum.epoch, quorum.voters, now_ms, self._name, silent_ms)
        self._append(term, first)
        for settled in machine.settle():
            self._append(term, settled)
            await self._keep_lease(term)
        await self._write(term)
        self._term, self._lost = term, None
        log.info("controller epoch %d serves at offset %d", quorum.epoch, term.committed)
        return term

    async def _load(self, term: Term) -> None:
        """Replay the adopted log, and keep the records that followers may still need.

        Loading may take longer than the lease. In the meantime the voters are told who leads,
        because otherwise their brokers would start one rival after another, and none would ever
        serve.
        """
        snapshot, entries = term.quorum.adopted
        for number, slice_ in enumerate(sliced(snapshot.records), 1):
            term.machine.replay(map(decode_record, slice_))
            stay(number)
            await self._keep_lease(term)
        term.machine.image.ends_at(snapshot.offset)
        for slice_ in sliced(chain.from_iterable(entry.records for entry in entries)):
            records = list(map(decode_record, slice_))
            term.machine.replay(records)
            term.keep(records)
            term.bytes_since_snapshot += sum(map(len, slice_))
            await self._keep_lease(term)

    async def _keep_lease(self, term: Term) -> None:
        """Let other tasks run, and probe the voters before the lease expires."""
        if self._unsupported_ms(term) > self._lease_ms / 4:
            term.quorum.probe()
        await self._runtime.sleep(0)

    async def _write_forever(self, term: Term) -> None:
        """Append what was decided. Everything that is queued goes into one append."""
        while True:
            await term.more.wait()
            term.more.clear()
            if self._term is not term:
                raise QuorumLost("the term is over")
            while term.unwritten:
                await self._write(term)
            if term.bytes_since_snapshot > self._snapshot_bytes and not term.snapshotting:
                self._begin_snapshot(term)

    async def _write(self, term: Term) -> None:
        entries, term.unwritten = term.unwritten, []
        begun_ms = self._runtime.monotonic_ms()
        await term.quorum.append(entries)
        self._counts.appends.observe((self._runtime.monotonic_ms() - begun_ms) / 1000)
        term.wrote(entries[-1].next_offset)
        log.debug("committed up to %d", term.committed)

    @property
    def _snapshot_bytes(self) -> int:
        return self._settings.number("metadata.log.max.record.bytes.between.snapshots")

    def _begin_snapshot(self, term: Term) -> None:
        """Start a snapshot of the log so far. Called when everything decided is committed."""
        assert term.machine.image.offset == term.committed, "a snapshot holds what counts"
        term.bytes_since_snapshot, term.snapshotting = 0, True
        taken = term.snapshots.take()
        self._runtime.start(self._snapshot(term, taken), "snapshot")

    async def _snapshot(self, term: Term, taken: Awaitable[EncodedSnapshot]) -> None:
        """Install the snapshot on the voters, while more entries may be appended."""
        encoded = await taken
        if self._term is term:
            snapshot = LogSnapshot(encoded.offset, term.quorum.epoch, encoded.records)
            await term.quorum.install_snapshot(snapshot)
        term.snapshotting = False
        term.more.set()

    def _resign(self, reason: str) -> None:
        term, self._term = self._term, None
        self._reason = reason
        if term is not None:
            term.end(reason)

    # ---- deciding ------------------------------------------------------------------------

    def _serving(self) -> Term:
        term = self._term
        if term is not None and self._unsupported_ms(term) > self._lease_ms:
            self._resign("a majority of the voters has not been heard for too long")
            term = None
        if term is None:
            raise NotController(
                f"this controller of the cluster {self._cluster_id} does not serve: {self._reason}"
            )
        return term

    def _unsupported_ms(self, term: Term) -> float:
        """Return the time since a majority was last known to follow this controller."""
        return self._runtime.monotonic_ms() - term.quorum.supported_ms

    def _append(self, term: Term, records: list[Record]) -> None:
        """Replay records and queue them for the log.

        Records that cannot be replayed must not reach a voter, because every later controller would
        fail on them.
        """
        if not records:
            return
        encoded = tuple(map(encode_record, records))
        entry = LogEntry(term.machine.image.offset, term.quorum.epoch, encoded)
        decisions = decisions_of(term.machine.image, records)
        self._counts.decided(term.machine.image, records, decisions, self._runtime.now_ms())
        term.machine.replay(records)
        term.tell_when_committed(decisions)
        term.unwritten.append(entry)
        term.bytes_since_snapshot += sum(map(len, encoded))
        term.keep(records)
        log.debug("decided %s", records)
        term.more.set()

    async def _decide(self, decide: Callable[[ControllerMachine], Decision[R]]) -> R:
        """Carry out a decision; return when it, and everything it is based on, is committed."""
        term = self._serving()
        decision = await self._last_step(term, decide)
        await term.until_committed(term.machine.image.offset)
        return decision.response

    async def _last_step(
        self, term: Term, decide: Callable[[ControllerMachine], Decision[R]]
    ) -> Decision[R]:
        """Append a decision step by step, with other requests handled between the steps."""
        decision = self._step(term, decide)
        while decision.more:
            await self._runtime.sleep(0)
            if self._serving() is not term:
                raise NotController("the controller's term is over")
            decision = self._step(term, decide)
        return decision

    def _step(self, term: Term, decide: Callable[[ControllerMachine], Decision[R]]) -> Decision[R]:
        """Decide and append with the garbage collector off, for up to 10,000 new partitions."""
        with without_collector():
            decision = decide(term.machine)
            self._append(term, decision.records)
        return decision

    async def _expire_forever(self) -> None:
        """Fence brokers whose session has expired; return leadership to preferred replicas."""
        interval_ms = self._settings.number("broker.heartbeat.interval.ms")
        while True:
            await self._runtime.sleep(interval_ms / 1000)
            self._check_lease()
            while self._term is not None:
                now_ms, machine = self._session_ms(), self._term.machine
                records = machine.brokers.expire(now_ms).records
                records = records or machine.leaders.balance(now_ms).records
                self._append(self._term, records)
                if not records:
                    break
                await self._runtime.sleep(0)
            self._grow()

    def _check_lease(self) -> None:
        """Probe the voters before the lease expires, if their brokers send no heartbeats."""
        term = self._term
        if term is None:
            return
        unsupported_ms = self._unsupported_ms(term)
        if term.quorum.rules.is_deposed or unsupported_ms > self._lease_ms:
            self._resign("the voters follow another controller, or none")
        elif unsupported_ms > self._lease_ms / 2:
            term.quorum.probe()

    def _session_ms(self) -> int:
        """Return the monotonic time for sessions, so that wall-clock jumps do not end them."""
        return int(self._runtime.monotonic_ms())

    # ---- brokers -------------------------------------------------------------------------

    async def register_broker(self, request: RegisterBroker) -> int:
        """Register a broker's process and return its broker epoch."""
        self._require_later(request.followed)
        now_ms = self._session_ms()
        return await self._decide(lambda machine: machine.brokers.register(request, now_ms))

    async def heartbeat(self, request: BrokerHeartbeat) -> BrokerHeartbeatAnswer:
        """Extend a broker's session."""
        term = self._serving()
        epoch = term.quorum.epoch
        voter = term.voter_of(request.broker_id)
        if voter is not None and request.promised_epoch > epoch:
            self._resign(f"controller epoch {request.promised_epoch} is promised")
            raise NotController(f"controller epoch {epoch} is over")
        if voter is not None and request.promised_epoch == epoch:
            term.quorum.rules.supported(*voter, request.heard_ms)
        if request.offset >= 0:
            term.saw(request.broker_id, request.offset, self._runtime.now_ms())
        before = term.machine.image.offset
        decision = await self._last_step(
            term, lambda machine: machine.brokers.heartbeat(request, self._session_ms())
        )
        end = term.machine.image.offset
        if end > before:
            await term.until_committed(end)
        now_ms = self._runtime.monotonic_ms()
        return decision.response._replace(offset=end, controller_epoch=epoch, sent_ms=now_ms)

    async def partitions_opened(self, opened: PartitionsOpened) -> None:
        """Record that a broker has opened partition logs."""
        await self._decide(lambda machine: machine.partitions_opened(opened))

    async def replicas_lost(self, request: ReplicasLost) -> None:
        """Move leadership away from partitions whose Replica process has ended."""
        await self._decide(lambda machine: machine.replicas_lost(request))

    async def alter_partitions(self, request: AlterPartitions) -> list[IsrOutcome]:
        """Change the in-sync replicas of partitions."""
        return await self._decide(lambda machine: machine.alter_partitions(request))

    async def allocate_producer_ids(self, request: AllocateProducerIds) -> ProducerIdBlock:
        """Allocate a block of producer ids."""
        return await self._decide(lambda machine: machine.allocate_producer_ids(request))

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker's registration."""
        await self._decide(lambda machine: machine.brokers.unregister(broker_id))

    async def want_brokers(self, changes: Sequence[BrokerWanted | BrokerUnwanted]) -> None:
        """Change which brokers should run where."""
        await self._decide(lambda machine: machine.brokers.wanted.want(changes))

    async def replace_broker(self, broker_id: int, directory_id: str) -> None:
        """Let a broker start with an empty directory in place of a lost one."""
        await self._decide(lambda m: m.brokers.wanted.replace(broker_id, directory_id))

    async def wanted_brokers(self) -> WantedBrokers:
        """Return which brokers should run, and where, according to committed metadata."""
        return await self._decide(lambda m: Decision([], m.brokers.wanted.answer()))

    async def elect_leaders(self, request: ElectLeaders) -> list[ElectOutcome]:
        """Elect preferred leaders, or any live replica."""
        return await self._decide(lambda machine: machine.leaders.elect(request))

    async def alter_reassignments(self, request: AlterReassignments) -> list[ReassignOutcome]:
        """Start or cancel reassignments."""
        return await self._decide(lambda machine: machine.alter_reassignments(request))

    async def create_topics(self, request: CreateTopics) -> list[TopicOutcome]:
        """Create topics."""
        names = chain.from_iterable(one.configs for one in request.topics)
        await have_learned(self._runtime, names)
        return await self._decide(lambda machine: machine.topics.create(request))

    async def delete_topics(self, request: DeleteTopics) -> list[TopicOutcome]:
        """Delete topics."""
        return await self._decide(lambda machine: machine.topics.delete(request))

    async def create_partitions(self, request: CreatePartitions) -> list[TopicOutcome]:
        """Add partitions to topics."""
        return await self._decide(lambda machine: machine.topics.create_partitions(request))

    async def alter_configs(self, request: AlterConfigs) -> list[ConfigOutcome]:
        """Change settings."""
        names = (op.name for one in request.alterations for op in one.ops)
        await have_learned(self._runtime, names)
        return await self._decide(lambda machine: machine.alter_configs(request))

    async def update_features(self, request: UpdateFeatures) -> list[FeatureOutcome]:
        """Change feature levels."""
        return await self._decide(lambda machine: machine.update_features(request))

    # ---- following -----------------------------------------------------------------------

    async def follow(self, request: Follow) -> MetadataUpdate:
        """Return committed metadata from an offset on; wait if there is none yet."""
        epoch = request.controller_epoch
        followed = Followed(request.metadata_id, epoch, request.offset, request.nonce)
        term = self._require_later(followed)
        if request.offset and epoch >= 0:
            require_agreement(request.broker_id, followed, term.machine.image)
        term.saw(request.broker_id, request.offset, self._runtime.now_ms())
        term.machine.brokers.followed(request.broker_id, request.offset)
        if request.offset == term.committed:
            await self._news(term, request.max_wait_ms)
            self._serving()
        if term.first_recent <= request.offset <= term.committed:
            end, records = term.records_for_one_response(request.offset)
            return MetadataUpdate(request.offset, end, records)
        # An older snapshot suffices if the records since then are few and still kept, and if the
        # broker has not followed the metadata beyond it.
        newest = term.machine.image.offset
        far = max(term.first_recent, newest - RECENT_RECORDS_MAX // 2, request.followed_offset)
        least = min(far, newest)
        encoded = await term.snapshots.take(least)
        await term.until_committed(encoded.offset)
        if self._term is not term:
            raise NotController("the controller's term is over")
        return MetadataUpdate(-1, encoded.offset, [], encoded.parts)

    def _require_later(self, followed: Followed) -> Term:
        """Return the term, unless the caller has followed this metadata in a later epoch.

        In that case either another controller serves, or that epoch was lost with a directory. The
        next epoch will be higher, so that brokers' records are compared with a log and not with an
        epoch.
        """
        if self._term is None and self._lost is not None:
            raise MetadataLost(self._lost)
        term = self._serving()
        same = followed.metadata_id in ("", term.machine.image.metadata_id)
        if same and followed.epoch > term.quorum.epoch:
            self._above_epoch = max(self._above_epoch, followed.epoch)
            self._resign(f"controller epoch {followed.epoch} has begun")
            raise NotController(f"controller epoch {term.quorum.epoch} is over")
        return term

    async def _news(self, term: Term, max_wait_ms: int) -> None:
        """Wait until something is committed, or until the timeout."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        term.followers[news] = None
        timer = self._runtime.call_later(max_wait_ms, lambda: finish(news))
        try:
            await news
        finally:
            timer.cancel()
            term.followers.pop(news, None)
        if self._term is not term:
            raise NotController("the controller's term is over")

    # ---- the voters ----------------------------------------------------------------------

    async def add_voter(self, request: AddVoter) -> None:
        """Make a copy of the metadata log a voter, once it has caught up."""
        term = self._serving()
        term.machine.voters.begin_joining(request, term.committed)
        is_level = False
        try:
            is_level = await self._bring_level(term, request)
        finally:
            if not is_level:
                term.machine.voters.gave_up()
        if self._term is not term:
            raise NotController("the controller's term is over")
        self._append(term, term.machine.voters.joined(self._following(term)).records)
        self._broker_ids = sorted({*self._broker_ids, request.broker_id})
        if request.ack_when_committed:
            await term.until_committed(term.machine.image.offset)

    async def _bring_level(self, term: Term, request: AddVoter) -> bool:
        voter = (request.broker_id, request.directory_id)
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                if await term.quorum.bring_level(*voter):
                    return True
        except (TimeoutError, QuorumLost) as lost:
            raise RequestTimedOut(
                f"Aborted add voter operation for ReplicaKey(id={request.broker_id}, "
                f"directoryId={request.directory_id}) since it is lagging behind: {lost}"
            ) from lost
        self._resign(f"broker {request.broker_id} has promised a later epoch")
        raise NotController("the next epoch is one that the new voter can follow")

    async def remove_voter(self, request: RemoveVoter) -> None:
        """Remove a copy of the metadata log from the voters."""
        term = self._serving()
        decision = term.machine.voters.remove(request, term.committed, self._following(term))
        self._append(term, decision.records)
        await term.until_committed(term.machine.image.offset)

    def _grow(self) -> None:
        """Use settled brokers: for replicas of internal topics, and as voters (KIP-853)."""
        term, now_ms = self._term, self._session_ms()
        if term is None:
            return
        settled = term.machine.brokers.settled(now_ms)
        self._append(term, term.machine.grow_internal_topics(now_ms, settled))
        if not self._settings.flag("controller.quorum.auto.join.enable"):
            return
        wanted = term.machine.voters.wanted(term.committed, settled, now_ms)
        if wanted is not None:
            self._runtime.start(self._change_voters(term, wanted), "change the voters")

    async def _change_voters(self, term: Term, wanted: AddVoter | RemoveVoter) -> None:
        log.info("changing the voters without a request: %s", wanted)
        try:
            if isinstance(wanted, AddVoter):
                await self.add_voter(wanted)
            else:
                await self.remove_voter(wanted)
        except KafkaError as refused:
            log.info("the voters were not changed: %s", refused)
            term.machine.voters.postpone(self._session_ms())

    def _following(self, term: Term) -> Voters:
        """Return the voters that have been heard within the lease."""
        return term.quorum.rules.in_contact_since(self._runtime.monotonic_ms() - self._lease_ms)

    async def describe_quorum(self) -> QuorumDescription:
        """Describe the voters and observers of the metadata log, and how far each has got."""
        return self._serving().description()
