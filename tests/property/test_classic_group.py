"""Classic groups under any sequence of requests, pauses and crashes."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.actors.group.rules.classic import State
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from tests.worlds.coordination.steps import Ask
from tests.worlds.group.classic import GROUP, REBALANCE_MS, SESSION_MS, Session

PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("other",))
LONG_MS = 20 * (REBALANCE_MS + SESSION_MS)
_places = st.integers(0, 30)
_protocols = st.sampled_from(PROTOCOLS)


class ClassicGroupSessions(RuleBasedStateMachine):
    """A few clients of one group. Responses determine what they do next."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(GroupSettings(initial_rebalance_delay_ms=2_000, size_max=4))
        self.ids = ["nobody"]
        self.generation = -1
        self.asks: list[Ask] = []

    def _id(self, place: int) -> str:
        """A recent id, or an unknown one."""
        return self.ids[-1 - place % min(len(self.ids), 6)]

    def _note(self, ask: Ask) -> None:
        """Remember a request and all ids in responses so far."""
        self.asks.append(ask)
        for known in self.asks:
            member_id = getattr(known.answer, "member_id", "")
            if member_id and member_id not in self.ids:
                self.ids.append(member_id)

    @rule(protocols=_protocols, version=st.integers(0, 9))
    def join_anew(self, protocols: tuple[str, ...], version: int) -> None:
        self._note(self.session.join(protocols=protocols, version=version))

    @rule(instance=st.sampled_from("ab"), protocols=_protocols, version=st.integers(5, 9))
    def join_static(self, instance: str, protocols: tuple[str, ...], version: int) -> None:
        self._note(self.session.join(instance=instance, protocols=protocols, version=version))

    @rule(place=_places, protocols=_protocols)
    def join_again(self, place: int, protocols: tuple[str, ...]) -> None:
        self._note(self.session.join(self._id(place), protocols=protocols))

    @precondition(lambda self: GROUP in self.session.world.groups)
    @rule()
    def leader_syncs(self) -> None:
        leader = self.session.group.leader
        if leader is not None:
            self._note(self.session.sync(leader, {name: name.encode() for name in self.ids}))

    @precondition(lambda self: GROUP in self.session.world.groups)
    @rule()
    def members_follow_the_protocol(self) -> None:
        group = self.session.group
        if group.state is State.PREPARING_REBALANCE:
            waiting = {ask.asked.request.member_id for ask in self.asks if ask.waits}
            for member in group.members:
                if member.member_id not in waiting and not member.is_new:
                    again = self.session.join(
                        member.member_id,
                        instance=member.instance_id,
                        protocols=member.protocols,
                    )
                    self._note(again)
        elif group.state is State.COMPLETING_REBALANCE:
            for member in group.members:
                self._note(self.session.sync(member.member_id, instance=member.instance_id))

    @precondition(lambda self: GROUP in self.session.world.groups)
    @rule(place=_places)
    def sync(self, place: int) -> None:
        self._note(self.session.sync(self._id(place)))

    @precondition(lambda self: GROUP in self.session.world.groups)
    @rule(place=_places)
    def heartbeat(self, place: int) -> None:
        self.session.heartbeat(self._id(place))

    @precondition(lambda self: GROUP in self.session.world.groups)
    @rule(places=st.lists(_places, max_size=2))
    def leave(self, places: list[int]) -> None:
        self.session.leave(*(self._id(place) for place in places))

    @rule(ms=st.sampled_from((1, 500, 2_000, SESSION_MS, REBALANCE_MS)))
    def pause(self, ms: int) -> None:
        self.session.world.advance(ms)

    @rule()
    def crash(self) -> None:
        lost = {asked.token for asked in self.session.world.crash()}
        waiting = {ask.asked.token for ask in self.asks if ask.waits}
        assert lost == waiting, "everyone who waits is told that the coordinator is gone"
        # A generation that was not recorded is numbered anew.
        self.asks = []
        self.generation = -1

    @invariant()
    def who_waits_is_a_member_of_a_group_under_way(self) -> None:
        group = self.session.world.groups.get(GROUP)
        if group is None:
            return
        members = [member.member_id for member in group.members]
        assert (group.leader in members) if members else (group.leader is None)
        assert len(set(members)) == len(members)
        waiting = [type(ask.asked.request).__name__ for ask in self.asks if ask.waits]
        allowed = {
            State.PREPARING_REBALANCE: {"JoinGroupRequest"},
            State.COMPLETING_REBALANCE: {"SyncGroupRequest"},
        }.get(group.state, set())
        assert set(waiting) <= allowed
        assert len(waiting) <= len(members) <= self.session.settings.size_max
        assert group.generation >= self.generation
        self.generation = group.generation

    @invariant()
    def a_settled_group_is_what_its_records_say(self) -> None:
        group = self.session.world.groups.get(GROUP)
        if group is None or group.state not in (State.STABLE, State.EMPTY):
            return
        loaded = Session(self.session.settings)
        loaded.world.log = self.session.world.log
        loaded.world.crash()
        if len(loaded.group.members) <= self.session.settings.size_max:
            assert loaded.describe() == self.session.describe()
            assert loaded.group.generation == group.generation

    @invariant()
    def everyone_in_a_generation_gets_the_same_answer(self) -> None:
        answers: dict[int, set[tuple[str, str]]] = {}
        for ask in self.asks:
            answer = ask.answer
            if hasattr(answer, "leader") and answer.error_code == ErrorCode.NONE:
                known = answers.setdefault(answer.generation_id, set())
                known.add((answer.protocol_name, answer.member_id))
        assert all(len({name for name, _ in known}) == 1 for known in answers.values())

    def teardown(self) -> None:
        """Check that without further requests, everything is answered and every member expires."""
        self.session.world.advance(LONG_MS)
        assert not [ask for ask in self.asks if ask.waits]
        group = self.session.world.groups.get(GROUP)
        if group is not None:
            assert group.state is State.EMPTY
        assert self.session.world.timers == {}


ClassicGroupSessions.TestCase.settings = settings(stateful_step_count=40)
TestClassicGroup = ClassicGroupSessions.TestCase
