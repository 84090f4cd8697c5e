"""Shell of the controller: wins an epoch, loads the metadata log, answers, writes what is decided.

A decision's records are replayed at once and answered once a majority of voters has synced them;
decisions made meanwhile go into the next append together. If that fails nobody knows what counts:
everything waiting is answered NotController, and the controller begins again with a new epoch and
the log as the voters have it. Where there are several voters it answers only while a majority of
them follows it; one that finds another in its place ends itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import TypeVar

from raylog.actors.collecting import stay
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import (
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
from raylog.actors.controller.counts import ControllerCounts, sample_term
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.machine import ControllerMachine
from raylog.actors.controller.quorum import (
    MOMENT_MS,
    STATE_TIMEOUT_MS,
    QuorumLost,
    RivalLeads,
    VoterQuorum,
)
from raylog.actors.controller.telling import decisions_of
from raylog.actors.controller.term import RECENT_RECORDS_MAX, Term, finish
from raylog.actors.interceptors.learning import have_learned
from raylog.actors.metadata.followed import Followed, MetadataLost, require_agreement
from raylog.actors.metadata.log import LogEntry, LogSnapshot
from raylog.actors.metadata.records import (
    BrokerUnwanted,
    BrokerWanted,
    Record,
    Voters,
    decode_record,
    encode_record,
)
from raylog.actors.metadata.snapshots import EncodedSnapshot, SnapshotEncoder, sliced
from raylog.actors.metadata.voting import lease_ms
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import controller_name
from raylog.actors.plain import taken
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.wire.collecting import without_collector
from raylog.wire.errors import InvalidRequest, KafkaError, NotController, RequestTimedOut

log = logging.getLogger(__name__)
R = TypeVar("R")
RETRY_MS = (20, 1_000)
"""First and longest wait before trying to take over again."""


class ControllerActor:
    """Serves the methods listed in `controller.api`."""

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
        """Why it does not serve, while it does not."""
        self._lost: str | None = None
        """Why it cannot, where there is no metadata any more: brokers that start are told so."""
        self._above_epoch = 0
        """The highest controller epoch that a broker is known to have followed."""
        self._moment_ms = MOMENT_MS
        """What a voter that hangs is given. Who has to try again waits longer: one that is late
        may know a later epoch."""

    async def start(self) -> None:
        """Begin to try for an epoch; answers are NotController until one is won."""
        self._runtime.start(self._lead_forever(), "lead")
        self._runtime.start(self._expire_forever(), "sessions")

    async def stop(self) -> None:
        """Stop serving; what waits is answered NotController."""
        self._resign("the controller stops")

    def link_received(self, request: LinkRequest) -> None:
        """Heartbeats come over links; nothing else does."""
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
        """Nothing is kept for links."""

    async def ping(self) -> dict[str, object]:
        """Who is here, and whether it serves."""
        epoch = -1 if self._term is None else self._term.quorum.epoch
        return {"pid": os.getpid(), "serves": self._term is not None, "epoch": epoch}

    async def metrics(self) -> ProcessMetrics:
        """What this controller has counted, and how the cluster stands if it serves."""
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
            # Two that come up at once and take the epoch from one another soon differ in step.
            await self._runtime.sleep(self._runtime.random.uniform(0.5, 1) * wait_ms / 1000)
            wait_ms = min(wait_ms * 2, RETRY_MS[1])

    async def _retire(self) -> None:
        """Another controller serves, and voters start the next one when it does not."""
        log.info("%s ends: another controller serves", self._name)
        await self._runtime.end_for_good(self._name)

    async def _take_over(self) -> Term:
        """Win an epoch, load the log, write the epoch's first records; then serve."""
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
        first = machine.took_over(
            quorum.epoch, quorum.voters, self._session_ms(), self._name, int(quorum.silent_ms)
        )
        self._append(term, first)
        for settled in machine.settle():
            self._append(term, settled)
            await self._keep_lease(term)
        await self._write(term)
        self._term, self._lost = term, None
        log.info("controller epoch %d serves at offset %d", quorum.epoch, term.committed)
        return term

    async def _load(self, term: Term) -> None:
        """Take in the adopted log, and keep what followers may still need of it.

        That may take longer than the lease: the voters are told meanwhile who leads, or their
        brokers would start one rival after the other, of which none would ever serve.
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
        """Let others run for a moment, and have the voters hear of this controller in time."""
        if self._unsupported_ms(term) > self._lease_ms / 4:
            term.quorum.probe()
        await self._runtime.sleep(0)

    async def _write_forever(self, term: Term) -> None:
        """Write what was decided, all that has gathered in one append."""
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
        """Let the image stand for the log so far. Called when everything decided is committed."""
        assert term.machine.image.offset == term.committed, "a snapshot holds what counts"
        term.bytes_since_snapshot, term.snapshotting = 0, True
        taken = term.snapshots.take()
        self._runtime.start(self._snapshot(term, taken), "snapshot")

    async def _snapshot(self, term: Term, taken: Awaitable[EncodedSnapshot]) -> None:
        """Have the voters put it in place of the entries below; others are written meanwhile."""
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
        """For how long no majority is known to follow."""
        return self._runtime.monotonic_ms() - term.quorum.supported_ms

    def _append(self, term: Term, records: list[Record]) -> None:
        """Replay records and have them written.

        What cannot be replayed must not reach a voter: every later controller would fail on it.
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
        """Carry a decision out; answered when it, and all it was based on, is committed."""
        term = self._serving()
        decision = await self._last_step(term, decide)
        await term.until_committed(term.machine.image.offset)
        return decision.response

    async def _last_step(
        self, term: Term, decide: Callable[[ControllerMachine], Decision[R]]
    ) -> Decision[R]:
        """Append what is decided, with others heard between the steps if there are several."""
        decision = self._step(term, decide)
        while decision.more:
            await self._runtime.sleep(0)
            if self._serving() is not term:
                raise NotController("the controller's term is over")
            decision = self._step(term, decide)
        return decision

    def _step(self, term: Term, decide: Callable[[ControllerMachine], Decision[R]]) -> Decision[R]:
        """Decide and append. What that makes stays, up to 10,000 partitions at once."""
        with without_collector():
            decision = decide(term.machine)
            self._append(term, decision.records)
        return decision

    async def _expire_forever(self) -> None:
        """Fence brokers whose session has run out; give leadership back to preferred replicas."""
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
        """Ask the voters before the lease ends, if their brokers' heartbeats do not come."""
        term = self._term
        if term is None:
            return
        unsupported_ms = self._unsupported_ms(term)
        if term.quorum.is_deposed or unsupported_ms > self._lease_ms:
            self._resign("the voters follow another controller, or none")
        elif unsupported_ms > self._lease_ms / 2:
            term.quorum.probe()

    def _session_ms(self) -> int:
        """The clock of sessions: a step of the wall clock must not end them."""
        return int(self._runtime.monotonic_ms())

    # ---- brokers -------------------------------------------------------------------------

    async def register_broker(self, asked: RegisterBroker) -> int:
        """Give a broker its broker epoch."""
        self._require_later(asked.followed)
        now_ms = self._session_ms()
        return await self._decide(lambda machine: machine.brokers.register(asked, now_ms))

    async def heartbeat(self, asked: BrokerHeartbeat) -> BrokerHeartbeatAnswer:
        """Keep a broker's session."""
        term = self._serving()
        epoch = term.quorum.epoch
        voter = term.voter_of(asked.broker_id)
        if voter is not None and asked.promised_epoch > epoch:
            self._resign(f"controller epoch {asked.promised_epoch} is promised")
            raise NotController(f"controller epoch {epoch} is over")
        if voter is not None and asked.promised_epoch == epoch:
            term.quorum.supported(*voter, asked.heard_ms)
        if asked.offset >= 0:
            term.saw(asked.broker_id, asked.offset, self._runtime.now_ms())
        before = term.machine.image.offset
        decision = await self._last_step(
            term,
            lambda machine: machine.brokers.heartbeat(asked, self._session_ms(), term.committed),
        )
        if term.machine.image.offset > before:
            await term.until_committed(term.machine.image.offset)
        return decision.response._replace(
            controller_epoch=epoch, sent_ms=self._runtime.monotonic_ms()
        )

    async def partitions_opened(self, asked: PartitionsOpened) -> None:
        """Count new openings of partition logs."""
        await self._decide(lambda machine: machine.partitions_opened(asked))

    async def replicas_lost(self, asked: ReplicasLost) -> None:
        """Move leadership off partitions whose process ended."""
        await self._decide(lambda machine: machine.replicas_lost(asked))

    async def alter_partitions(self, asked: AlterPartitions) -> list[IsrOutcome]:
        """Change partitions' in-sync replicas."""
        return await self._decide(lambda machine: machine.alter_partitions(asked))

    async def allocate_producer_ids(self, asked: AllocateProducerIds) -> ProducerIdBlock:
        """Hand out a block of producer ids."""
        return await self._decide(lambda machine: machine.allocate_producer_ids(asked))

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker."""
        await self._decide(lambda machine: machine.brokers.unregister(broker_id))

    async def want_brokers(self, changes: list[BrokerWanted | BrokerUnwanted]) -> None:
        """Change which brokers shall run where."""
        await self._decide(lambda machine: machine.brokers.wanted.want(changes))

    async def replace_broker(self, broker_id: int, directory_id: str) -> None:
        """Have a broker begin with an empty directory."""
        await self._decide(lambda m: m.brokers.wanted.replace(broker_id, directory_id))

    async def wanted_brokers(self) -> WantedBrokers:
        """Which brokers shall run where; what is answered is committed."""
        return await self._decide(lambda m: Decision([], m.brokers.wanted.answer()))

    async def elect_leaders(self, asked: ElectLeaders) -> list[ElectOutcome]:
        """Elect preferred leaders, or any."""
        return await self._decide(lambda machine: machine.leaders.elect(asked))

    async def alter_reassignments(self, asked: AlterReassignments) -> list[ReassignOutcome]:
        """Begin or end reassignments."""
        return await self._decide(lambda machine: machine.alter_reassignments(asked))

    async def create_topics(self, asked: CreateTopics) -> list[TopicOutcome]:
        """Create topics."""
        await have_learned(self._runtime, chain.from_iterable(one.configs for one in asked.topics))
        return await self._decide(lambda machine: machine.topics.create(asked))

    async def delete_topics(self, asked: DeleteTopics) -> list[TopicOutcome]:
        """Delete topics."""
        return await self._decide(lambda machine: machine.topics.delete(asked))

    async def create_partitions(self, asked: CreatePartitions) -> list[TopicOutcome]:
        """Give topics more partitions."""
        return await self._decide(lambda machine: machine.topics.create_partitions(asked))

    async def alter_configs(self, asked: AlterConfigs) -> list[ConfigOutcome]:
        """Change settings."""
        await have_learned(self._runtime, (op.name for one in asked.alterations for op in one.ops))
        return await self._decide(lambda machine: machine.alter_configs(asked))

    async def update_features(self, asked: UpdateFeatures) -> list[FeatureOutcome]:
        """Change feature levels."""
        return await self._decide(lambda machine: machine.update_features(asked))

    # ---- following -----------------------------------------------------------------------

    async def follow(self, asked: Follow) -> MetadataUpdate:
        """Committed metadata from an offset on; waits for some if there is none."""
        followed = Followed(asked.metadata_id, asked.controller_epoch, asked.offset, asked.nonce)
        term = self._require_later(followed)
        if asked.offset and asked.controller_epoch >= 0:
            require_agreement(asked.broker_id, followed, term.machine.image)
        term.saw(asked.broker_id, asked.offset, self._runtime.now_ms())
        term.machine.brokers.followed(asked.broker_id, asked.offset)
        if asked.offset == term.committed:
            await self._news(term, asked.max_wait_ms)
            self._serving()
        if term.first_recent <= asked.offset <= term.committed:
            end, records = term.told_at_once(asked.offset)
            return MetadataUpdate(asked.offset, end, records)
        # An older one does as well if not much has come since, all of which can be told, and if the
        # broker has not followed more of it before.
        newest = term.machine.image.offset
        far = max(term.first_recent, newest - RECENT_RECORDS_MAX // 2, asked.followed_offset)
        least = min(far, newest)
        encoded = await term.snapshots.take(least)
        await term.until_committed(encoded.offset)
        if self._term is not term:
            raise NotController("the controller's term is over")
        return MetadataUpdate(-1, encoded.offset, [], encoded.parts)

    def _require_later(self, followed: Followed) -> Term:
        """The term, unless somebody has followed this metadata in a later controller epoch.

        Then another controller serves. Or that epoch was lost with a directory: the next one is
        above it, so that what brokers have noted is compared with a log and not with an epoch.
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
        """Wait until something is committed, but not for long."""
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

    async def add_voter(self, asked: AddVoter) -> None:
        """Let a copy of the metadata log vote, once it is level."""
        term = self._serving()
        term.machine.voters.begin_joining(asked, term.committed)
        is_level = False
        try:
            is_level = await self._bring_level(term, asked)
        finally:
            if not is_level:
                term.machine.voters.gave_up()
        if self._term is not term:
            raise NotController("the controller's term is over")
        self._append(term, term.machine.voters.joined(self._following(term)).records)
        self._broker_ids = sorted({*self._broker_ids, asked.broker_id})
        if asked.ack_when_committed:
            await term.until_committed(term.machine.image.offset)

    async def _bring_level(self, term: Term, asked: AddVoter) -> bool:
        voter = (asked.broker_id, asked.directory_id)
        try:
            async with asyncio.timeout(asked.timeout_ms / 1000):
                if await term.quorum.bring_level(*voter):
                    return True
        except (TimeoutError, QuorumLost) as lost:
            raise RequestTimedOut(
                f"Aborted add voter operation for ReplicaKey(id={asked.broker_id}, "
                f"directoryId={asked.directory_id}) since it is lagging behind: {lost}"
            ) from lost
        self._resign(f"broker {asked.broker_id} has promised a later epoch")
        raise NotController("the next epoch is one that the new voter can follow")

    async def remove_voter(self, asked: RemoveVoter) -> None:
        """Let a copy of the metadata log vote no more."""
        term = self._serving()
        decision = term.machine.voters.remove(asked, term.committed, self._following(term))
        self._append(term, decision.records)
        await term.until_committed(term.machine.image.offset)

    def _grow(self) -> None:
        """Use brokers that have come to stay: for the internal topics, and as voters (KIP-853)."""
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
        log.info("the voters change by themselves: %s", wanted)
        try:
            if isinstance(wanted, AddVoter):
                await self.add_voter(wanted)
            else:
                await self.remove_voter(wanted)
        except KafkaError as refused:
            log.info("the voters stay as they are: %s", refused)
            term.machine.voters.postpone(self._session_ms())

    def _following(self, term: Term) -> Voters:
        """The voters that were heard within the lease."""
        return term.quorum.heard_since(self._runtime.monotonic_ms() - self._lease_ms)

    async def describe_quorum(self) -> QuorumDescription:
        """The voters and observers of the metadata log, and how far each is."""
        return self._serving().description()
