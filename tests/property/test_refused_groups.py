"""Groups whose appends may fail at any time. Their state is then as if nothing was requested.

Both protocols, members that join, leave and fall silent, topics, patterns, offsets and deletions,
in any order. Steps wait in order until the log accepts them, or refuses one with all that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.coordination.rules.step import ClientCall, LogRecord, Step, TimerKey
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.rules.classic import ClassicGroup
from raylog.actors.group.rules.consumer import ConsumerGroup
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.shard import Shard
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import TopicDeleted
from raylog.wire.errors import CoordinatorNotAvailable
from raylog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.actors.group.test_offsets import committing
from tests.unit.actors.group.test_shard import joining
from tests.worlds.coordination.steps import START_MS, Timers, commit, revert, set_timers
from tests.worlds.group.shard import assignment_blob, forget
from tests.worlds.metadata import id_of, topic_records

SETTINGS = GroupSettings(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
GROUPS = ("a", "b")
MEMBERS = ("m", "n", "o")
INSTANCE = "i"
REFUSED = CoordinatorNotAvailable("refused")


@dataclass
class World:
    """A shard, its log, and a clock."""

    shard: Shard = field(default_factory=lambda: Shard(SETTINGS, Assigning()))
    image: MetadataImage = field(default_factory=MetadataImage)
    now_ms: int = START_MS
    random: Random = field(default_factory=lambda: Random(7))
    timers: Timers = field(default_factory=dict)
    waiting: list[Step] = field(default_factory=list)
    """Steps whose records are not in the log yet."""
    before: list[Any] = field(default_factory=list)
    """The state before each of them."""
    log: list[LogRecord] = field(default_factory=list)
    requests: dict[int, Any] = field(default_factory=dict)
    """Requests without an answer, by token."""
    tokens: int = 0

    def __post_init__(self) -> None:
        self.image.apply_all([*topic_records("t", 3), *topic_records("u", 2)])

    def run(self, event: Callable[[Step], object]) -> Step:
        """Run one step, which waits for the log if it has records."""
        before = hard_state(self.shard)
        step = Step(self.now_ms, float(self.now_ms), self.image, self.random, self.shard.replay)
        event(step)
        set_timers(self.timers, step.timers)
        for answer in step.answers:
            if not answer.durable or not step.records:
                del self.requests[answer.token]  # nothing is answered twice
        if step.records:
            self.waiting.append(step)
            self.before.append(before)
        return step

    def take(self) -> None:
        """Let the log accept everything that waits."""
        for step in self.waiting:
            self.log.extend(step.records)
            commit(step)
            for answer in step.answers:
                if answer.durable:
                    del self.requests[answer.token]
        self.waiting.clear()
        self.before.clear()

    def refuse(self, number: int) -> None:
        """Let the log accept some of what waits, and refuse the rest."""
        rest, states = self.waiting[number:], self.before[number:]
        self.waiting, self.before = self.waiting[:number], self.before[:number]
        self.take()
        if not rest:
            return
        revert(rest)
        assert hard_state(self.shard) == states[0], "as it was"
        for step in rest:
            for answer in step.answers:
                if answer.durable:
                    del self.requests[answer.token]
        records = [record for step in rest for record in step.records]
        self.run(lambda step: self.shard.reverted(step, records, REFUSED))

    # ---- what happens --------------------------------------------------------------------

    def ask(self, request: Any, version: int) -> None:
        """Send a client's request."""
        self.tokens += 1
        asked = ClientCall(self.tokens, request, version, "client", "/127.0.0.1")
        self.requests[asked.token] = asked
        self.run(lambda step: self.shard.handle(step, asked))

    def enter(self, group: str, member: str, topic: str, pattern: bool) -> None:
        """Let a KIP-848 member join, or rejoin with another subscription."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=0,
            instance_id=INSTANCE if member == "o" else None,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[] if pattern else [topic],
            subscribed_topic_regex=f"{topic}.*" if pattern else None,
            topic_partitions=[],
        )
        self.ask(request, 1)

    def beat(self, group: str, member: str, epoch: int | None, gives_up: bool) -> None:
        """Send a heartbeat at the member's own epoch, or a leave. It may own nothing."""
        found = self.shard.groups.get(group)
        held = 1
        if isinstance(found, ConsumerGroup):
            held = found.state.holding(member).epoch
        owned: list[TopicPartitions] | None = [] if gives_up else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=held if epoch is None else epoch,
            instance_id=INSTANCE if member == "o" else None,
            topic_partitions=owned,
        )
        self.ask(request, 1)

    def join(self, group: str, topic_too: bool, static: bool, known: int) -> None:
        """Let a classic member join, a known or a new one."""
        member_id = _nth(self.members(group), known)
        fields: dict[str, Any] = {"group_instance_id": "classic" if static else None}
        if topic_too:
            fields["rebalance_timeout_ms"] = 20_000
        self.ask(joining(group, member_id=member_id, **fields), 3 if not static else 7)

    def sync(self, group: str, known: int) -> None:
        """Let a classic member sync. The leader sends all assignments."""
        found = self.shard.groups.get(group)
        members = self.members(group)
        if not members:
            return
        member_id = _nth(members, known)
        generation = found.generation if isinstance(found, ClassicGroup) else 1
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=assignment_blob({"t": [0]}))
                for one in members
            ],
        )
        self.ask(request, 3)

    def leave(self, group: str, known: int) -> None:
        """Let a classic member leave."""
        identity = MemberIdentity(member_id=_nth(self.members(group), known))
        self.ask(LeaveGroupRequest(group_id=group, members=[identity]), 4)

    def members(self, group: str) -> list[str]:
        """The current classic members."""
        found = self.shard.groups.get(group)
        if isinstance(found, ClassicGroup):
            return [member.member_id for member in found.members]
        if isinstance(found, ConsumerGroup):
            return [name for name, one in found.state.profiles.items() if one.classic is not None]
        return []

    def commit(self, group: str, offset: int) -> None:
        """Commit an offset."""
        self.ask(committing({offset % 3: offset}, group=group), 9)

    def delete(self, group: str) -> None:
        """Delete a group."""
        self.ask(DeleteGroupsRequest(groups_names=[group]), 2)

    def forget_topic(self) -> None:
        """Delete a topic and create it again."""
        number = self.image.topic_ids["t"][0]
        records = topic_records("t", 3, number=number % 200 + 1)
        self.image.apply_all([TopicDeleted(id_of("t", number)), *records])
        self.run(lambda step: forget(self.shard, step, {"t"}))

    def wait(self, ms: int) -> None:
        """Let time pass and timers fire."""
        self.now_ms += ms
        for _ in range(20):
            due = [name for name, at_ms in self.timers.items() if at_ms <= self.now_ms]
            if not due:
                return
            for name in due:
                if self.timers.get(name, self.now_ms + 1) <= self.now_ms:
                    del self.timers[name]
                    self._fire(*name)

    def _fire(self, group_id: str, key: TimerKey) -> None:
        self.run(lambda step: self.shard.timer(step, group_id, key))

    # ---- what must hold ------------------------------------------------------------------

    def check(self) -> None:
        """Check that memory equals the log's content, and that members have sessions."""
        loaded = Shard(SETTINGS, Assigning())
        for record in self.log:
            loaded.replay(record).commit()
        assert hard_state(self.shard, of_log=True) == hard_state(loaded, of_log=True)
        for group_id, group in self.shard.groups.items():
            members = (
                [one.member_id for one in group.members]
                if isinstance(group, ClassicGroup)
                else [*group.state.profiles]
            )
            for member_id in members:
                waits = any(
                    isinstance(asked, ClientCall)
                    and getattr(asked.request, "member_id", "") == member_id
                    for asked in self.requests.values()
                )
                assert waits or (group_id, ("session", member_id)) in self.timers


def _nth(members: list[str], number: int) -> str:
    """One of the members, or an unknown one."""
    return members[number] if number < len(members) else ""


def hard_state(shard: Shard, *, of_log: bool = False) -> Any:
    """What records say; of classic groups only what no rebalance under way has to do with.

    With `of_log` less: there an empty classic group may not be known to be empty.
    """
    groups: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if isinstance(group, ConsumerGroup):
            state = group.state
            if group.is_new():
                continue  # its first records were reverted just now
            owners = {
                (topic_id, index): frozenset(names)
                for topic_id, partitions in state.owners.items()
                for index, names in partitions.items()
            }
            groups[group_id] = (
                (state.group_epoch, state.metadata_hash),
                (state.target_epoch, state.target_timestamp_ms),
                (dict(state.profiles), dict(state.holdings), dict(state.targets)),
                (dict(state.regexes), dict(state.static_ids)),
                (dict(state.topic_counts), dict(state.regex_counts), owners),
            )
        else:
            groups[group_id] = "classic"
    offsets = {
        (group_id, topic, index): stored.offset
        for group_id, topics in shard.offsets.groups.items()
        for topic, partitions in topics.items()
        for index, stored in partitions.items()
    }
    places = set() if of_log else set(shard.offsets.groups)
    return groups, offsets, places


_groups, _members = st.sampled_from("aab"), st.sampled_from(MEMBERS)
_known = st.integers(0, 2)
Action = Callable[[World], None]


def _call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    def build(given_ones: tuple[Any, ...]) -> Action:
        return lambda world: getattr(world, name)(*given_ones)

    return st.tuples(*arguments).map(build)


_actions = st.one_of(
    _call("enter", _groups, _members, st.sampled_from("tu"), st.booleans()),
    _call("beat", _groups, _members, st.none(), st.booleans()),
    _call("beat", _groups, _members, st.sampled_from((-1, -2)), st.just(False)),
    _call("join", _groups, st.booleans(), st.booleans(), _known),
    _call("join", _groups, st.booleans(), st.booleans(), _known),
    _call("sync", _groups, _known),
    _call("leave", _groups, _known),
    _call("commit", _groups, st.integers(0, 8)),
    st.one_of(_call("delete", _groups), _call("forget_topic")),
    _call("wait", st.sampled_from((0, 0, 1_000, 11_000, 50_000))),
    _call("take"),
    _call("refuse", st.integers(0, 2)),
    _call("refuse", st.just(0)),
)


@given(st.lists(_actions, min_size=5, max_size=40))
def test_refused_requests_change_nothing(actions: list[Action]) -> None:
    world = World()
    for action in actions:
        action(world)
    world.wait(0)
    world.take()
    world.check()
