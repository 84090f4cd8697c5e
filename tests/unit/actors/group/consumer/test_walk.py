"""A random walk of clients of both protocols in one group, with lost responses and crashes.

Clients are modelled by the partitions they work on: new ones are added at once, and lost ones are
dropped only when the client reports it. No two live clients may work on one partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from tests.worlds.group.shard import GROUP, Owned, ShardWorld, assigned_by

TOPICS = {"t": 4, "u": 3, "v": 1}
_NAMES = st.lists(st.sampled_from(sorted(TOPICS)), unique=True)
Partition = tuple[str, int]


@dataclass
class Client:
    """One client as it sees itself."""

    member_id: str
    classic: bool
    topics: list[str]
    instance_id: str | None = None
    epoch: int = 0
    assigned: frozenset[Partition] = frozenset()
    using: frozenset[Partition] = frozenset()
    unsure: bool = False
    """Whether an answer was lost: what follows is a full request, as clients send it then."""
    synced: bool = True
    """Whether a classic client has asked what it owns since it joined."""

    def hear(self, owned: Owned) -> None:
        """Begin with what is new; go on with what is to be given up."""
        self.assigned = frozenset((name, one) for name, some in owned.items() for one in some)
        self.using |= self.assigned

    def give_up(self) -> Owned:
        """Stop what is no longer given, and say what is left."""
        self.using = self.assigned
        left: Owned = {}
        for name, one in sorted(self.using):
            left.setdefault(name, []).append(one)
        return left


class Walk(RuleBasedStateMachine):
    """The walk. The group never becomes classic here, because that ends the walk's rules."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ShardWorld(
            GroupSettings(consumer_assignment_interval_ms=100, consumer_migration_policy="upgrade")
        )
        self.world.topics(**TOPICS)
        self.clients: dict[str, Client] = {}
        self.made = 0
        self.epochs = (0, 0)

    @property
    def state(self) -> GroupState:
        return self.world.consumer.state

    def _pick(self, index: int, *, classic: bool | None = None) -> Client | None:
        some = [one for one in self.clients.values() if classic is None or one.classic is classic]
        return some[index % len(some)] if some else None

    def _beat(self, client: Client, epoch: int, **fields: Any) -> None:
        answer = self.world.beat(client.member_id, epoch, instance_id=client.instance_id, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        client.epoch = answer.member_epoch
        owned = self.world.owned(answer)
        if owned is not None:
            client.hear(owned)

    @precondition(lambda self: len(self.clients) < 6)
    @rule(topics=_NAMES, static=st.booleans(), regex=st.sampled_from(["", "[tu]", ".*"]))
    def enter(self, topics: list[str], static: bool, regex: str) -> None:
        self.made += 1
        client = Client(f"m{self.made}", False, topics, f"i{self.made}" if static else None)
        self.clients[client.member_id] = client
        self._enter(client, regex)

    def _enter(self, client: Client, regex: str) -> None:
        client.assigned = client.using = frozenset()
        client.unsure = False
        self._beat(
            client,
            0,
            owned={},
            subscribed_topic_names=client.topics,
            subscribed_topic_regex=regex,
            rebalance_timeout_ms=20_000,
        )

    @rule(index=st.integers(0, 5), lost=st.booleans())
    def live(self, index: int, lost: bool) -> None:
        client = self._pick(index, classic=False)
        if client is not None:
            self._say(client, lost=lost, owned=None)

    @rule(index=st.integers(0, 5), lost=st.booleans())
    def give_up(self, index: int, lost: bool) -> None:
        client = self._pick(index, classic=False)
        if client is not None:
            self._say(client, lost=lost, owned=client.give_up())

    def _say(self, client: Client, *, lost: bool, owned: Owned | None) -> None:
        """One that missed an answer may be fenced, and then begins anew."""
        fields: dict[str, Any] = {}
        if client.unsure:
            owned = client.give_up()
            fields = {"subscribed_topic_names": client.topics, "rebalance_timeout_ms": 20_000}
        answer = self.world.beat(
            client.member_id, client.epoch, owned, instance_id=client.instance_id, **fields
        )
        if answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            self._enter(client, "") if client.instance_id is None else self._return(client)
            return
        client.unsure = lost
        if not lost:
            assert answer.error_code == ErrorCode.NONE, answer
            client.epoch = answer.member_epoch
            owned = self.world.owned(answer)
            if owned is not None:
                client.hear(owned)

    def _return(self, client: Client) -> None:
        """A static client leaves for a while and comes back under another id."""
        client.assigned = client.using = frozenset()
        self.world.beat(client.member_id, -2, instance_id=client.instance_id)
        del self.clients[client.member_id]
        self.made += 1
        client.member_id = f"m{self.made}"
        self.clients[client.member_id] = client
        self._enter(client, "")

    @rule(index=st.integers(0, 5))
    def restart(self, index: int) -> None:
        client = self._pick(index, classic=False)
        if client is not None and client.instance_id is not None:
            self._return(client)

    @rule(index=st.integers(0, 5), topics=_NAMES)
    def subscribe(self, index: int, topics: list[str]) -> None:
        client = self._pick(index, classic=False)
        if client is not None and client.epoch == self.state.holding(client.member_id).epoch:
            client.topics = topics
            self._beat(client, client.epoch, subscribed_topic_names=topics)

    @rule(index=st.integers(0, 5))
    def leave(self, index: int) -> None:
        client = self._pick(index)
        if client is None:
            return
        del self.clients[client.member_id]
        if client.classic:
            self.world.leave((client.member_id, None))
        else:
            self.world.beat(client.member_id, -1, instance_id=client.instance_id)

    @precondition(lambda self: 0 < len(self.clients) < 6)
    @rule(topics=_NAMES)
    def join_classic(self, topics: list[str]) -> None:
        self.made += 1
        client = Client(f"c{self.made}", True, topics)
        self.clients[client.member_id] = client
        self._rejoin(client)

    @rule(index=st.integers(0, 5), sync=st.booleans())
    def live_classic(self, index: int, sync: bool) -> None:
        client = self._pick(index, classic=True)
        if client is None:
            return
        self._live(client, sync=sync)

    def _live(self, client: Client, *, sync: bool) -> None:
        if not client.synced:
            self._sync(client)
        code = self.world.live(client.member_id, client.epoch)
        assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        if code:
            self._rejoin(client, sync=sync)

    def _rejoin(self, client: Client, *, sync: bool = True) -> None:
        """Join, and learn what is owned now or later."""
        joined = self.world.join(client.member_id, *client.topics, owned=client.give_up())
        assert joined.error_code == ErrorCode.NONE
        client.epoch, client.synced = joined.generation_id, False
        if sync:
            self._sync(client)

    def _sync(self, client: Client) -> None:
        answer = self.world.sync(client.member_id, client.epoch)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        if not answer.error_code:
            client.synced = True
            client.hear(assigned_by(answer.assignment))

    @rule(ms=st.sampled_from([0, 100, 1_000, 7_000]))
    def wait(self, ms: int) -> None:
        """Who is out by then stops: its session has ended as it sees it, too."""
        self.world.advance(ms)
        members = self.state.profiles if GROUP in self.world.shard.groups else {}
        for member_id in [one for one in self.clients if one not in members]:
            del self.clients[member_id]

    @rule()
    def crash(self) -> None:
        before = self.state if GROUP in self.world.shard.groups else None
        self.world.crash()
        assert (self.state if GROUP in self.world.shard.groups else None) == before

    @invariant()
    def no_partition_is_worked_on_twice(self) -> None:
        seen: dict[Partition, str] = {}
        for client in self.clients.values():
            for partition in client.using:
                other = seen.setdefault(partition, client.member_id)
                assert other == client.member_id, f"{partition}: {other} and {client.member_id}"

    @invariant()
    def records_agree(self) -> None:
        if GROUP not in self.world.shard.groups:
            return
        state = self.state
        owned = [
            (topic_id, one)
            for holding in state.holdings.values()
            for some in (holding.assigned, holding.revoking)
            for topic_id, epochs in some.items()
            for one in epochs
        ]
        assert len(owned) == len(set(owned)), "owned twice"
        owners = sum(len(some) for some in state.owners.values())
        assert owners == len(owned)
        assert state.target_epoch <= state.group_epoch
        epochs = (state.group_epoch, state.target_epoch)
        assert epochs >= self.epochs
        self.epochs = epochs

    def teardown(self) -> None:
        """Left alone, every partition that somebody wants ends up with one client."""
        self.wait(1_000)
        for _ in range(12):
            for client in tuple(self.clients.values()):
                if client.classic:
                    self._live(client, sync=True)
                else:
                    self._say(client, lost=False, owned=client.give_up())
            self.world.advance(100)
        if not self.clients:
            return
        assert self.world.group.state_name() == "Stable", self.state
        state = self.state
        wanted = {
            (name, one)
            for profile in state.profiles.values()
            for name in state.topics_of(profile)
            for one in range(TOPICS.get(name, 0))
        }
        using = [one for client in self.clients.values() for one in client.using]
        assert sorted(using) == sorted(wanted)


Walk.TestCase.settings = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestWalk = Walk.TestCase
