"""A sink's driver: runs one batch after another through `commit.BatchMachine`.

The caller (Spark in `raylog.raydp_jobs`, Ray in `raylog.ray_data`) passes a function that runs the
writing tasks once under an identity and returns the outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.sink.batches import UNKNOWN_CLUSTER, Batch, StateLost, same_cluster
from raylog.sink.clusters import Clusters
from raylog.sink.commit import (
    BatchMachine,
    CheckRegistration,
    Effect,
    End,
    Ended,
    Event,
    Finished,
    Identified,
    ReadState,
    Refused,
    Register,
    RegistrationChecked,
    StateRead,
    StateWritten,
    TakeIdentity,
    Write,
    WriteLost,
    WriteState,
    Written,
)
from raylog.sink.coordinator import SinkRequests, choose_protocol
from raylog.sink.counts import FAILED, REPEATED, WRITTEN, counts_of
from raylog.sink.lookup import name_of
from raylog.sink.partition_run import PartitionRun
from raylog.sink.permits import PermitClient
from raylog.sink.rows import Topics
from raylog.sink.state import SinkState
from raylog.sink.state_topic import STATE_TOPIC, StateTopic
from raylog.sink.writer import WriterSettings
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)

_TOPIC_WAIT_MS = 15_000

R = TypeVar("R", bound=PartitionRun)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a sink writes."""

    transaction_timeout_ms: int = 300_000
    """Must be longer than any batch takes; at most the broker's `transaction.max.timeout.ms`."""
    runs_max: int = 5
    """How often a batch is attempted before the query fails."""
    row_bytes_max: int = 1_000_000
    """Limit of one record before compression; the topic's `max.message.bytes` must allow it."""
    rows_per_block: int = 10_000
    """Rows that a map task holds at a time."""
    writer: WriterSettings = field(default_factory=WriterSettings)
    client: ClientSettings | None = None
    """Replaces the default client settings and the `bootstrap` argument."""
    state_topic: str = STATE_TOPIC
    """The compacted topic of the sinks' states; created on first use."""


class SinkDriver:
    """The transactional id, group and connections of one sink."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: str | Sequence[str],
        sink_id: str,
        settings: SinkSettings | None,
    ) -> None:
        """`sink_id` determines the transactional id and the group, which nothing else may use."""
        self.settings = settings or SinkSettings()
        self.sink_id = sink_id
        self.client = self.settings.client or ClientSettings(parse_bootstrap(bootstrap))
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._io = BlockingIo()
        self._core = Core(self._io, self.client)
        self.clusters = Clusters(self.client)
        self._known: SinkRequests | None = None
        self._is_registered = False
        self._identity: ProducerIdentity | None = None
        self._state: SinkState | None = None

    @property
    def requests(self) -> SinkRequests:
        """The sink's requests, in the transaction protocol of the cluster's finalized features."""
        if self._known is None:
            protocol = run_blocking(choose_protocol(self._core))
            name = name_of(self.sink_id)
            states = StateTopic(self._core, self.settings.state_topic, self.sink_id)
            self._known = SinkRequests(self._core, protocol, name, name, states, self._topics)
        return self._known

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that is written to."""
        return run_blocking(self.requests.cluster_id())

    def topics(self) -> Topics:
        """Return the sink's topics with current partition counts; raise UnknownTopicOrPartition."""
        counts = dict.fromkeys(self._topics, 0)
        for key in self.partitions_of(self._topics):
            counts[key.topic] += 1
        return Topics(counts)

    def partitions_of(
        self, topics: Collection[str], source_bootstrap: str | None = None
    ) -> list[TopicPartition]:
        """Return all partitions of topics, uncached; raise UnknownTopicOrPartition.

        `source_bootstrap` names a cluster other than the sink's.
        """
        if source_bootstrap is not None:
            return self.clusters.partitions_of(source_bootstrap, topics)
        return run_blocking(self._core.partitions_of(topics, timeout_ms=_TOPIC_WAIT_MS))

    def run_of(
        self, kind: type[R], identity: ProducerIdentity, topics: Topics, permit_client: PermitClient
    ) -> R:
        """Return what the tasks of one run need, as an instance of `kind`."""
        return kind(
            self.client,
            self.requests.protocol,
            self.requests.transactional_id,
            identity,
            topics,
            self.settings.writer,
            self.settings.row_bytes_max,
            permit_client,
        )

    def write(self, batch: Batch, run: Callable[[ProducerIdentity], Event]) -> bool:
        """Write a batch unless it is written; return whether it was new. Raises BatchFailed.

        `run` has the tasks write once and returns Written or WriteLost.
        """
        begun_ms, rows = self._now_ms(), 0
        offsets = batch.offsets(self.cluster_id)
        machine = BatchMachine(
            batch,
            self.requests.protocol,
            self._identity,
            self._state,
            self._is_registered,
            timeout_ms=self.settings.transaction_timeout_ms,
            runs_max=self.settings.runs_max,
        )
        self._identity = self._state = None
        try:
            step = machine.start(self._now_ms())
            while not isinstance(step.effect, Finished):
                run_blocking(self._io.pause(step.pause_ms))
                if isinstance(step.effect, Write):
                    event = run(step.effect.identity)
                    rows = _rows(event)
                else:
                    event = run_blocking(self.requests.carry_out(step.effect, offsets))
                log.info("%s, %s: %s", self.sink_id, batch.mark, _text_of(event))
                step = machine.handle(event, self._now_ms())
        except BaseException:
            self._ended(FAILED, machine.runs, 0, begun_ms)
            if machine.runs:
                self._release()
            raise
        self._is_registered = True
        self._identity, self._state = step.effect.identity, step.effect.state
        is_new = step.effect.is_new
        self._ended(WRITTEN if is_new else REPEATED, machine.runs, rows, begun_ms)
        return is_new

    def committed(self, source_bootstrap: str | None = None) -> dict[TopicPartition, int]:
        """Return the source offsets up to which batches are written; empty before the first.

        Fences an earlier driver and ends its transaction first. `source_bootstrap` limits the
        result to sources on that cluster. Raises StateLost, and ValueError for an ambiguous
        partition.
        """
        wanted = UNKNOWN_CLUSTER
        if source_bootstrap is not None:
            wanted = self.clusters.cluster_id(source_bootstrap)
        self._take_over()
        match self._settle(ReadState()):
            case StateRead(state):
                self._state = state
            case event:
                raise AssertionError(f"{event} answers another request")
        return ends_of(self._state, wanted)

    def reset(
        self,
        positions: Mapping[TopicPartition, int] | None = None,
        *,
        source_bootstrap: str | None = None,
    ) -> None:
        """Forget what was written, so that any query may start, at `positions` if given.

        `source_bootstrap` is the cluster of these positions; None: the sink's own. Fences an
        earlier driver and ends its transaction first.
        """
        of_cluster = self.cluster_id
        if source_bootstrap is not None:
            of_cluster = self.clusters.cluster_id(source_bootstrap)
        identity = self._take_over()
        self._identity = self._state = None
        known, _ = run_blocking(self._core.repeat(self.requests.states.read))
        marks = run_blocking(self._core.repeat(self.requests.read_marks))
        state = SinkState(
            1 if known is None else known.sequence + 1,
            positions={(of_cluster, key): end for key, end in (positions or {}).items()},
            superseded=marks.batches(),
        )
        match self._settle(WriteState(identity, state)):
            case StateWritten(report) if report.failure is not None:
                raise StateLost(f"{report.partition}: {report.failure}")
        match self._settle(End(identity)):
            case Ended(following) if self.requests.protocol.keeps_identity:
                self._identity, self._state = following, state

    def close(self) -> None:
        """Close all connections."""
        self._core.close()
        self._io.close()

    def _take_over(self) -> ProducerIdentity:
        """Fence earlier writers; register a new sink first."""
        if not self._is_registered:
            match self._settle(CheckRegistration()):
                case RegistrationChecked(is_new=True):
                    self._settle(Register())
            self._is_registered = True
        self._identity = self._state = None
        match self._settle(self._take_identity()):
            case Identified(identity):
                self._identity = identity
                return identity
            case event:
                raise AssertionError(f"{event} answers another request")

    def _settle(self, effect: Effect) -> Event:
        return run_blocking(self.requests.settle(effect))

    def _take_identity(self) -> TakeIdentity:
        return TakeIdentity(self.settings.transaction_timeout_ms)

    def _release(self) -> None:
        """End the transaction of a failed batch; otherwise readers wait until it times out."""
        try:
            self._settle(self._take_identity())
        except (KafkaError, ClientError) as failure:
            log.warning("%s: the open transaction waits for its timeout: %s", self.sink_id, failure)

    def _ended(self, outcome: str, runs: int, rows: int, begun_ms: int) -> None:
        took_s = (self._now_ms() - begun_ms) / 1000
        counts_of(self.sink_id).ended(outcome, runs, rows, took_s)

    def _now_ms(self) -> int:
        return int(self._io.now_ms())


def ends_of(state: SinkState, cluster_id: str = UNKNOWN_CLUSTER) -> dict[TopicPartition, int]:
    """Return the offsets up to which sources are written, for one cluster or for all.

    Raises ValueError if several of these clusters have different ends for the same partition name.
    """
    found: dict[TopicPartition, int] = {}
    for (of_cluster, key), end in state.ends().items():
        if not same_cluster(of_cluster, cluster_id):
            continue
        if found.get(key, end) != end:
            raise ValueError(f"{key} is read of several clusters: say which by source_bootstrap")
        found[key] = end
    return found


def _rows(event: Event) -> int:
    """Return how many rows a run has written."""
    return sum(report.count for report in event.reports) if isinstance(event, Written) else 0


def _text_of(event: Event) -> str:
    """Format an event for the log."""
    match event:
        case Written(reports):
            partitions = sum(report.count > 0 for report in reports)
            return f"{_rows(event)} rows are written to {partitions} partitions"
        case WriteLost(reason):
            return f"to be written again: {reason}"
        case StateWritten(report) if report.failure is not None:
            return f"to be written again: {report.partition}: {report.failure}"
        case Refused(code, reason):
            return f"{code.name} {reason}"
        case _:
            return type(event).__name__
