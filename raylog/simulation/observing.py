"""Checks the replicas of a running simulation: after each step, and at checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raylog.actors.common_messages import PartitionKey, PartitionLeadership, TopicId
from raylog.actors.metadata.image import PartitionState
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.leading import Proposal
from raylog.actors.replica.rules.machine import (
    IsrAltered,
    LeadershipChanged,
    PartitionMachine,
    Propose,
    Truncated,
)
from raylog.simulation.cluster import Cluster
from raylog.simulation.properties import Checks, Property
from raylog.wire.errors import DecodeError, KafkaError
from raylog.wire.records import iter_batches

_STEP = "handle"
_CHANGES = (LeadershipChanged, IsrAltered)
"""Events that may change the in-sync replicas."""
CHANGES_MAX = 40
"""The most changes of one partition between two checkpoints."""


@dataclass(slots=True)
class _Known:
    """The state of a replica's machine before its last step."""

    machine: PartitionMachine
    high_watermark: int
    leader_epoch: int
    key: PartitionKey | None = None


class Observer:
    """Checks what is visible from outside, without changing the run."""

    def __init__(self, cluster: Cluster, checks: Checks) -> None:
        self._cluster = cluster
        self._hold = checks.hold
        self.is_suspended = False
        """Set while what happens is not part of the history."""
        self.is_unclean = False
        """Whether a leader may lack committed records."""
        self.rewritten: set[TopicId] = set()
        """Topics whose replicas may differ, because each deletes and compacts on its own."""
        self.end_listeners: dict[PartitionKey, Callable[[int, int], None]] = {}
        """By partition, called with broker id and log end after each step of a machine."""
        self._machines: dict[int, _Known] = {}
        self._leaders: dict[tuple[PartitionKey, int], int] = {}
        self._starts: dict[int, tuple[Partition, int]] = {}
        self._changes: dict[PartitionKey, int] = {}
        self._left: dict[tuple[PartitionKey | None, int, int, str], int] = {}
        """By partition, leader epoch, broker and incarnation, the log end on leaving the ISR."""

    # ---- after every step of a replica -----------------------------------------------------

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Check every step of every replica's machine within the context."""
        original: Callable[[PartitionMachine, Any], Any] = PartitionMachine.handle

        def handle(machine: PartitionMachine, event: Any) -> Any:
            effects = original(machine, event)
            if self.is_suspended:
                return effects
            self._stepped(machine, event)
            for effect in effects:
                if isinstance(effect, Propose):
                    self._proposed(machine, effect.proposal)
            return effects

        setattr(PartitionMachine, _STEP, handle)
        try:
            yield
        finally:
            setattr(PartitionMachine, _STEP, original)

    def _stepped(self, machine: PartitionMachine, event: object) -> None:
        hold = self._hold
        high_watermark, epoch = machine.high_watermark, machine.leader_epoch
        hold(
            Property.HIGH_WATERMARK_HELD,
            high_watermark <= machine.log_end_offset,
            high_watermark,
            machine.log_end_offset,
        )
        known = self._machines.get(id(machine))
        if known is None:
            known = self._machines[id(machine)] = _Known(machine, 0, epoch)
        hold(
            Property.HIGH_WATERMARK_FORWARD,
            high_watermark >= known.high_watermark
            or (self.is_unclean and isinstance(event, Truncated)),
            f"broker {machine.broker_id}: {known.high_watermark} became {high_watermark}",
        )
        hold(Property.EPOCHS_FORWARD, epoch >= known.leader_epoch, known.leader_epoch, epoch)
        if isinstance(event, LeadershipChanged):
            self._leadership_changed(known, event.leadership)
        if machine.is_leader and (
            high_watermark > known.high_watermark or isinstance(event, _CHANGES)
        ):
            self._check_members(known)
        known.high_watermark, known.leader_epoch = high_watermark, epoch
        if known.key in self.end_listeners:
            self.end_listeners[known.key](machine.broker_id, machine.log_end_offset)

    def _leadership_changed(self, known: _Known, leadership: PartitionLeadership) -> None:
        machine = known.machine
        known.key = (leadership.topic_id, leadership.partition)
        if machine.is_leader:
            key = (known.key, machine.leader_epoch)
            leader = self._leaders.setdefault(key, machine.broker_id)
            one = leader == machine.broker_id
            self._hold(Property.ONE_LEADER_AN_EPOCH, one, key, leader)

    def _proposed(self, machine: PartitionMachine, proposal: Proposal) -> None:
        """Check that a follower that left the ISR has appended something before it rejoins."""
        key, progress = self._machines[id(machine)].key, machine.progress
        assert progress is not None, "a leader proposes"
        members = dict(proposal.isr)
        for broker_id, state in progress._followers.items():
            name = (key, proposal.leader_epoch, broker_id, state.incarnation)
            if broker_id in progress.isr and broker_id not in members:
                self._left[name] = state.log_end_offset
            elif broker_id in members and broker_id not in progress.isr and name in self._left:
                left_at = self._left.pop(name)
                gone_on = state.log_end_offset > left_at
                self._hold(Property.LAGGARDS_STAY_OUT, gone_on, broker_id, "is still at", left_at)

    def _check_members(self, known: _Known) -> None:
        """Check that all who may be elected next hold what this leader has released."""
        machine, key = known.machine, known.key
        if key is None or machine.progress is None:
            return
        state = self._cluster.newest_image().partition(*key)
        if (
            state is None
            or state.leader_epoch != machine.leader_epoch
            or _knows_more(machine, state)
        ):
            return
        for broker_id, partition in self._living(key, state.isr):
            if partition.machine.incarnation == state.incarnations.get(broker_id, ""):
                end = partition.log.log_end_offset
                self._hold(
                    Property.ISR_HOLDS_COMMITTED,
                    end >= machine.high_watermark,
                    f"{partition.name} on broker {broker_id}, while released:",
                    end,
                    machine.high_watermark,
                )

    def _living(
        self, key: PartitionKey, broker_ids: tuple[int, ...]
    ) -> Iterator[tuple[int, Partition]]:
        for broker_id, replica in self._cluster.replicas():
            partition = replica._partitions.get(key) if broker_id in broker_ids else None
            if partition is not None:
                yield broker_id, partition

    # ---- at checkpoints --------------------------------------------------------------------

    def look(self) -> None:
        """Check every living actor."""
        for broker_id, replica in self._cluster.replicas():
            for partition in replica._partitions.values():
                self._look_at(broker_id, partition)
        self._look_at_changes()
        self._compare_replicas()

    def _look_at_changes(self) -> None:
        """Check that partition epochs, which rise with every change, do not rise too fast."""
        for topic in self._cluster.newest_image().topics.values():
            for index, state in enumerate(topic.partitions):
                key = (topic.topic_id, index)
                changes = state.partition_epoch - self._changes.get(key, 0)
                few = changes <= CHANGES_MAX
                self._hold(Property.ISR_SETTLES, few, topic.name, index, changes)
                self._changes[key] = state.partition_epoch

    def _look_at(self, broker_id: int, partition: Partition) -> None:
        start = partition.log.log_start_offset
        _, before = self._starts.setdefault(id(partition), (partition, start))
        self._hold(Property.LOG_START_FORWARD, start >= before, broker_id, partition.topic)
        self._starts[id(partition)] = partition, start

    def _open(self) -> dict[PartitionKey, dict[int, Partition]]:
        """The living replicas of each partition, by broker."""
        found: dict[PartitionKey, dict[int, Partition]] = {}
        for broker_id, replica in self._cluster.replicas():
            for key, partition in replica._partitions.items():
                found.setdefault(key, {})[broker_id] = partition
        return found

    def _compare_replicas(self, *, whole: bool = False) -> None:
        image = self._cluster.newest_image()
        for key, replicas in self._open().items():
            state = image.partition(*key)
            if state is None:
                continue
            leader = replicas.get(state.leader)
            if leader is None or not leader.machine.is_leader:
                continue
            if leader.machine.leader_epoch != state.leader_epoch or _knows_more(
                leader.machine, state
            ):
                continue
            for broker_id in state.isr:
                follower = replicas.get(broker_id)
                if follower is not None and follower.machine.incarnation == (
                    state.incarnations.get(broker_id, "")
                ):
                    self._compare(leader, follower, whole=whole)

    def _compare(self, leader: Partition, follower: Partition, *, whole: bool) -> None:
        high_watermark = leader.high_watermark
        end = follower.log.log_end_offset
        name = f"{leader.topic}-{leader.key[1]} on broker {follower.machine.broker_id}"
        self._hold(Property.ISR_HOLDS_COMMITTED, end >= high_watermark, name, end, high_watermark)
        whole = whole and leader.key[0] not in self.rewritten
        if whole and follower is not leader and end >= high_watermark:
            ours = self._bytes_of(leader, high_watermark)
            theirs = self._bytes_of(follower, high_watermark)
            if ours is None or theirs is None:
                return
            same = ours == theirs
            self._hold(Property.REPLICAS_EQUAL, same, name, len(ours), len(theirs))

    def compare_all(self) -> None:
        """Compare all committed bytes."""
        self._compare_replicas(whole=True)

    def _bytes_of(self, partition: Partition, high_watermark: int) -> bytes | None:
        """What a replica holds below a high watermark; None if it cannot be read."""
        log = partition.log
        machine = self._cluster.machine_of(partition.machine.broker_id)
        data = b"".join(
            machine.disk.contents(f"{log.directory}/{segment.name}")[: segment.size]
            for segment in log.state.segments
        )
        end, next_offset, damage = 0, log.log_start_offset, ""
        try:
            for header, batch in iter_batches(data):
                if header.next_offset > high_watermark:
                    break
                end, next_offset = end + len(batch), header.next_offset
        except (KafkaError, DecodeError) as failure:
            damage = str(failure)
        name = f"{partition.name} on broker {partition.machine.broker_id}"
        what = f"{name} cannot be read from offset {next_offset} on: {damage}"
        self._hold(Property.REPLICAS_READABLE, not damage, what)
        return None if damage else data[:end]


def _knows_more(leader: PartitionMachine, state: PartitionState) -> bool:
    """Whether the leader's ISR comes from a controller that no living process has heard."""
    return leader.progress is not None and state.partition_epoch < leader.progress._isr_epoch
