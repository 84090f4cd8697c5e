"""Registration, sessions, fencing and clean shutdown."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import (
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    PartitionsOpened,
)
from raylog.actors.controller.rules import brokers, partitions
from raylog.actors.controller.rules.changes import PartitionChange
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.machine import ControllerMachine
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    PartitionChanged,
)
from raylog.wire.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    KafkaError,
    StaleBrokerEpoch,
)
from tests.worlds.controller.machine import CLUSTER, Controlled

R = TypeVar("R")


def registered(broker_id: int, epoch: int, *, fenced: bool, **changes: str) -> BrokerRegistered:
    return BrokerRegistered(
        broker_id=broker_id,
        broker_epoch=epoch,
        host="h",
        port=9092 + broker_id,
        rack=None,
        directory_id=changes.get("directory_id", f"d{broker_id}"),
        incarnation=changes.get("incarnation", f"i{broker_id}"),
        fenced=fenced,
    )


# ---- registration ----------------------------------------------------------------------------


def test_a_new_broker_is_fenced_and_its_epoch_is_its_records_offset() -> None:
    world = Controlled(brokers=0)
    offset = world.image.offset
    decision = world.machine.brokers.register(world.registration(0), 0)
    assert decision == Decision([registered(0, offset, fenced=True)], offset)


def test_a_repeated_registration_gets_the_same_epoch() -> None:
    world = Controlled(brokers=1)
    decision = world.machine.brokers.register(world.registration(0), 0)
    assert decision == Decision([], world.epochs[0])


def test_a_broker_of_another_cluster_is_refused() -> None:
    world = Controlled(brokers=0)
    with pytest.raises(InconsistentClusterId, match="this is cluster cluster, not other"):
        world.machine.brokers.register(world.registration(0, cluster_id="other"), 0)


def test_a_second_directory_cannot_be_a_live_broker() -> None:
    world = Controlled(brokers=1)
    asked = world.registration(0, directory_id="other", incarnation="new")
    with pytest.raises(DuplicateBrokerRegistration, match="broker id 0"):
        world.machine.brokers.register(asked, 0)
    world.pass_time(6_001)
    world.expire()
    offset = world.image.offset
    decision = world.machine.brokers.register(asked, 0)
    expected = registered(0, offset, fenced=True, directory_id="other", incarnation="new")
    assert decision == Decision([expected], offset)


def test_a_process_that_only_restarted_goes_on_leading() -> None:
    world = Controlled(brokers=1)
    world.topic("t", (0,))
    asked = world.registration(
        0, incarnation="new", previous_broker_epoch=world.epochs[0], kept_running=True
    )
    offset = world.image.offset
    decision = world.machine.brokers.register(asked, 0)
    assert decision == Decision([registered(0, offset, fenced=False, incarnation="new")], offset)


@pytest.mark.parametrize(
    "changes",
    [
        {"kept_running": False},
        {"kept_running": True, "previous_broker_epoch": -1},
    ],
)
def test_any_other_restart_takes_the_broker_out_first(changes: dict[str, object]) -> None:
    world = Controlled(brokers=2)
    alone = world.topic("alone", (0,))
    shared = world.topic("shared", (0, 1))
    asked = world.registration(
        0, **{"incarnation": "new", "previous_broker_epoch": world.epochs[0], **changes}
    )
    offset = world.image.offset
    decision = world.machine.brokers.register(asked, 0)
    assert decision == Decision(
        [
            PartitionChanged(alone, 0, leader=NO_LEADER, isr=(), last_known_elr=(0,)),
            PartitionChanged(shared, 0, leader=1, isr=(1,)),
            registered(0, offset + 2, fenced=True, incarnation="new"),
        ],
        offset + 2,
    )


# ---- heartbeats ------------------------------------------------------------------------------


def test_a_heartbeat_past_the_registration_unfences_and_gives_waiting_partitions_back() -> None:
    world = Controlled(brokers=2)
    alone = world.topic("alone", (0,))
    world.topic("shared", (0, 1))
    world.register(0, incarnation="new")
    epoch = world.epochs[0]
    early = world.heartbeat(0, offset=epoch)
    assert early == Decision([], BrokerHeartbeatAnswer(True, False))
    decision = world.heartbeat(0, offset=epoch + 1)
    assert decision == Decision(
        [
            BrokerUnfenced(0, epoch),
            PartitionChanged(alone, 0, leader=0, isr=(0,), last_known_elr=()),
        ],
        BrokerHeartbeatAnswer(False, False),
    )
    world.beat(0)
    assert world.heartbeat(0) == Decision([], BrokerHeartbeatAnswer(False, False))


def test_an_unclean_replica_leads_only_where_that_is_allowed() -> None:
    world = Controlled(brokers=2)
    allowed = world.topic("allowed", (0, 1), configs={"unclean.leader.election.enable": "true"})
    denied = world.topic("denied", (0, 1))
    world.register(0, incarnation="new")  # out of sync: broker 1 leads
    world.pass_time(6_001, 0)
    assert world.expire() == [
        BrokerFenced(1, world.epochs[1]),
        PartitionChanged(allowed, 0, leader=0, isr=(0,)),
        PartitionChanged(denied, 0, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
    ]


def test_an_unclean_replica_that_comes_back_leads_where_that_is_allowed() -> None:
    world = Controlled(brokers=2, settings={"unclean.leader.election.enable": "true"})
    topic_id = world.topic("t", (0, 1))
    denied = world.topic("denied", (0, 1), configs={"unclean.leader.election.enable": "false"})
    world.register(0, incarnation="new")
    world.pass_time(6_001)
    assert world.expire() == [
        BrokerFenced(1, world.epochs[1]),
        PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
        PartitionChanged(denied, 0, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
    ]
    decision = world.heartbeat(0)
    assert isinstance(decision, Decision)
    assert decision.records == [
        BrokerUnfenced(0, world.epochs[0]),
        PartitionChanged(topic_id, 0, leader=0, isr=(0,), elr=(), last_known_elr=()),
    ]


def test_a_heartbeat_of_another_epoch_is_refused() -> None:
    world = Controlled(brokers=1)
    world.epochs[0] += 1
    with pytest.raises(StaleBrokerEpoch, match="broker 0 has broker epoch"):
        world.heartbeat(0)
    world.epochs[7] = 0
    with pytest.raises(StaleBrokerEpoch, match="broker 7 has broker epoch none"):
        world.heartbeat(7)


def test_a_silent_broker_is_fenced_after_its_session() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    alone = world.topic("alone", (1,))
    world.pass_time(6_000)
    assert world.expire() == []
    world.beat(1)
    world.now_ms += 1
    assert world.expire() == [
        BrokerFenced(0, world.epochs[0]),
        PartitionChanged(topic_id, 0, leader=1, isr=(1,)),
    ]
    assert world.expire() == []
    world.pass_time(6_000)
    assert world.expire() == [
        BrokerFenced(1, world.epochs[1]),
        PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
        PartitionChanged(alone, 0, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
    ]


def test_brokers_are_fenced_one_after_the_other() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    world.pass_time(6_001)
    assert world.expire() == [
        BrokerFenced(0, world.epochs[0]),
        PartitionChanged(topic_id, 0, leader=1, isr=(1,)),
    ]
    assert world.expire() == [
        BrokerFenced(1, world.epochs[1]),
        PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=(1,), last_known_elr=(1,)),
    ]


def test_a_new_controller_gives_every_broker_a_session() -> None:
    world = Controlled(brokers=1)
    world.pass_time(5_000)
    world.machine.took_over(2, ((0, "d0"),), world.now_ms)
    world.pass_time(6_000)
    assert world.expire() == []
    world.now_ms += 1
    assert world.expire() == [BrokerFenced(0, world.epochs[0])]


@pytest.mark.parametrize(("silent_ms", "left_ms"), [(1_000, 5_000), (3_500, 2_500), (9_000, 2_500)])
def test_sessions_have_run_while_there_was_no_controller(silent_ms: int, left_ms: int) -> None:
    world = Controlled(brokers=1)
    world.machine.took_over(2, ((0, "d0"),), world.now_ms, silent_ms=silent_ms)
    world.pass_time(left_ms)
    assert world.expire() == []
    world.now_ms += 1
    assert world.expire() == [BrokerFenced(0, world.epochs[0])]


@pytest.mark.parametrize("session_ms", [600, 2_000, 6_000, 60_000])
@pytest.mark.parametrize("interval_ms", [10, 500, 5_000])
@pytest.mark.parametrize("silent_ms", [0, 300, 2_000, 1_000_000])
def test_a_new_controller_leaves_each_broker_the_lease_that_the_old_one_granted(
    session_ms: int, interval_ms: int, silent_ms: int
) -> None:
    settings = {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(interval_ms),
    }
    world = Controlled(brokers=1, settings=settings)
    world.machine.took_over(2, ((0, "d0"),), world.now_ms, silent_ms=silent_ms)
    ends_ms = world.now_ms + world.machine.brokers.kept_ms
    while world.now_ms < ends_ms:
        assert world.expire() == []
        world.now_ms += 20


def test_a_controller_that_was_held_up_has_heard_nobody() -> None:
    world = Controlled(brokers=1)
    world.pass_time(5_000)
    world.now_ms += 60_000
    assert world.expire() == []
    world.pass_time(6_000)
    assert world.expire() == []
    world.now_ms += 1
    assert world.expire() == [BrokerFenced(0, world.epochs[0])]


def test_a_new_controller_counts_from_when_it_took_over() -> None:
    """Its clock may stand anywhere: that no session was looked at before is no delay of its own."""
    world = Controlled(brokers=1)
    world.now_ms += 1_000_000
    world.machine.took_over(2, ((0, "d0"),), world.now_ms, silent_ms=1_000)
    world.now_ms += 2_900
    assert world.expire() == []
    world.now_ms += 2_101
    assert world.expire() == [BrokerFenced(0, world.epochs[0])]


@pytest.mark.parametrize(("late_ms", "fenced"), [(3_000, True), (3_001, False)])
def test_a_controller_is_held_up_if_it_looks_later_than_half_a_session(
    late_ms: int, fenced: bool
) -> None:
    world = Controlled(brokers=1)
    world.pass_time(3_001)
    world.expire()
    world.now_ms += late_ms
    assert bool(world.expire()) == fenced


RESTARTED = {"incarnation": "new", "kept_running": True}


@pytest.mark.parametrize("changes", [{}, RESTARTED])
def test_a_registration_begins_a_session(changes: dict[str, object]) -> None:
    """Repeated, or of a broker that goes on leading."""
    world = Controlled(brokers=1)
    world.pass_time(5_000)
    world.register(0, previous_broker_epoch=world.epochs[0], **changes)
    assert not world.image.brokers[0].fenced
    world.pass_time(6_000)
    assert world.expire() == []
    world.now_ms += 1
    assert world.expire() == [BrokerFenced(0, world.epochs[0])]


def test_a_fenced_broker_whose_process_restarts_stays_fenced() -> None:
    world = Controlled(brokers=1)
    world.pass_time(6_001)
    world.expire()
    world.register(0, previous_broker_epoch=world.epochs[0], **RESTARTED)
    assert world.image.brokers[0].fenced


@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_a_broker_that_had_a_later_epoch_than_there_is_is_refused(ahead: int) -> None:
    """An epoch is the offset of its record: one at the end is of other metadata, too."""
    world = Controlled(brokers=2)
    asked = world.registration(
        0, incarnation="new", previous_broker_epoch=world.image.offset + ahead
    )
    if ahead < 0:
        assert world.machine.brokers.register(asked, 0).records
    else:
        with pytest.raises(KafkaError, match="ends at offset"):
            world.machine.brokers.register(asked, 0)


# ---- shutdown --------------------------------------------------------------------------------


def test_a_leaving_broker_hands_over_in_one_step_and_goes_when_the_others_know() -> None:
    world = Controlled(brokers=3)
    alone = world.topic("alone", (0,))
    shared = world.topic("shared", (0, 1), (1, 0))
    epoch = world.epochs[0]
    first = world.heartbeat(0, leave=True)
    assert first == Decision(
        [
            BrokerShuttingDown(0, epoch),
            PartitionChanged(alone, 0, leader=NO_LEADER, isr=(), elr=(0,), last_known_elr=(0,)),
            PartitionChanged(shared, 0, leader=1, isr=(1,)),
            PartitionChanged(shared, 1, isr=(1,)),
        ],
        BrokerHeartbeatAnswer(False, False),
    )
    assert isinstance(first, Decision)
    handed_over = world.image.offset + len(first.records)
    world.machine.brokers.followed(1, handed_over)
    world.machine.brokers.followed(2, handed_over - 1)
    world.carry(first)
    waits = Decision([], BrokerHeartbeatAnswer(False, False))
    assert world.heartbeat(0, leave=True) == waits
    world.machine.brokers.followed(2, handed_over)
    second = world.heartbeat(0, leave=True)
    assert second == Decision([BrokerFenced(0, epoch)], BrokerHeartbeatAnswer(True, True))
    assert isinstance(second, Decision)
    world.carry(second)
    assert world.heartbeat(0, leave=True) == Decision([], BrokerHeartbeatAnswer(True, True))


def test_a_new_controller_lets_a_leaving_broker_go_when_the_others_follow_it() -> None:
    world = Controlled(brokers=2)
    world.topic("shared", (0, 1))
    leaving = world.heartbeat(0, leave=True)
    assert isinstance(leaving, Decision)
    world.carry(leaving)
    machine = ControllerMachine(CLUSTER, BrokerSettings(), random.Random(1))
    machine.replay(world.image.snapshot())
    machine.image.ends_at(world.image.offset)
    asked = BrokerHeartbeat(0, world.epochs[0], -1, wants_shutdown=True)
    assert not machine.brokers.heartbeat(asked, 0).response.should_shut_down
    machine.brokers.followed(1, machine.image.offset)
    assert machine.brokers.heartbeat(asked, 0).response.should_shut_down


def test_a_leaving_broker_waits_until_all_know_whatever_a_late_heartbeat_says() -> None:
    world = Controlled(brokers=2)
    world.topic("shared", (0, 1))
    world.beat(1)
    leaving = world.heartbeat(0, leave=True)
    assert isinstance(leaving, Decision)
    world.carry(leaving)
    world.heartbeat(1, offset=1)
    left_ = world.heartbeat(0, leave=True)
    assert isinstance(left_, Decision)
    assert left_.response.should_shut_down, "broker 1 knew it already"


def test_a_new_controller_waits_until_the_others_follow_it_that_a_broker_leaves() -> None:
    world = Controlled(brokers=2)
    world.topic("shared", (0, 1))
    leaving = world.heartbeat(0, leave=True)
    assert isinstance(leaving, Decision)
    world.carry(leaving)
    machine = ControllerMachine(CLUSTER, BrokerSettings(), random.Random(1))
    machine.replay(world.image.snapshot())
    machine.image.ends_at(world.image.offset)
    machine.brokers.followed(1, machine.image.offset - 1)
    machine.brokers.followed(0, machine.image.offset)
    asked = BrokerHeartbeat(0, world.epochs[0], -1, wants_shutdown=True)
    assert not machine.brokers.heartbeat(asked, 0).response.should_shut_down


def test_a_broker_that_came_back_and_has_nothing_to_hand_over_goes_at_once() -> None:
    world = Controlled(brokers=2)
    world.topic("shared", (0, 1))
    for _ in range(2):
        leaving = world.heartbeat(0, leave=True)
        assert isinstance(leaving, Decision)
        world.carry(leaving)
    world.register(0, incarnation="new", previous_broker_epoch=world.epochs[0])
    world.beat(0)
    leaving = world.heartbeat(0, leave=True)
    assert isinstance(leaving, Decision)
    assert leaving.response.should_shut_down


def test_the_last_broker_goes_at_once_and_is_the_leader_when_it_comes_back_clean() -> None:
    world = Controlled(brokers=1)
    topic_id = world.topic("t", (0,))
    epoch = world.epochs[0]
    gone = PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=(0,), last_known_elr=(0,))
    decision = world.heartbeat(0, leave=True)
    assert decision == Decision(
        [BrokerShuttingDown(0, epoch), BrokerFenced(0, epoch), gone],
        BrokerHeartbeatAnswer(True, True),
    )
    assert isinstance(decision, Decision)
    world.carry(decision)
    again = world.registration(
        0, incarnation="new", previous_broker_epoch=epoch, clean_shutdown=True
    )
    (record,) = world.machine.brokers.register(again, world.now_ms).records
    world.carry(Decision([record], None))
    world.epochs[0] = world.image.offset - 1
    back = world.heartbeat(0)
    assert isinstance(back, Decision)
    assert back.records == [
        BrokerUnfenced(0, world.epochs[0]),
        PartitionChanged(topic_id, 0, leader=0, isr=(0,), elr=(), last_known_elr=()),
    ]


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({"clean_shutdown": True}, True),
        ({"kept_running": True}, True),
        ({}, False),
        ({"clean_shutdown": True, "previous_broker_epoch": 1}, False),
        ({"kept_running": True, "directory_id": "another"}, False),
    ],
)
def test_a_broker_that_lost_nothing_stays_eligible(changes: dict[str, object], stays: bool) -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), configs={"min.insync.replicas": "2"})
    world.pass_time(6_001, 2)
    world.expire()
    world.expire()
    assert (world.state(topic_id).leader, world.state(topic_id).isr, world.state(topic_id).elr) == (
        2,
        (2,),
        (1,),
    )
    epoch = world.epochs[1]
    world.register(1, **{"incarnation": "new", "previous_broker_epoch": epoch, **changes})
    assert (world.state(topic_id).isr, world.state(topic_id).elr) == ((2,), (1,) if stays else ())


@pytest.mark.parametrize(
    ("unanswered", "kept_running", "stays"),
    [
        (("unheard",), True, True),
        (("an older one", "unheard", "never registered"), True, True),
        (("unheard",), False, False),
        (("never registered",), True, False),
        ((), True, False),
    ],
)
def test_a_process_that_ended_before_it_knew_its_epoch_lost_nothing(
    unanswered: tuple[str, ...], kept_running: bool, stays: bool
) -> None:
    """The next one does not know the epoch that the controller does, but who has asked for it."""
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1), configs={"min.insync.replicas": "2"})
    world.pass_time(6_001, 0)
    world.expire()
    assert (world.state(topic_id).isr, world.state(topic_id).elr) == ((0,), (1,))
    asked = {"previous_broker_epoch": world.epochs[1], "kept_running": True}
    world.register(1, incarnation="unheard", **asked)
    world.register(
        1, **{**asked, "incarnation": "next", "kept_running": kept_running}, unanswered=unanswered
    )
    assert world.state(topic_id).elr == ((1,) if stays else ())


def test_a_broker_with_nothing_to_hand_over_goes_at_once() -> None:
    world = Controlled(brokers=1)
    assert world.heartbeat(0, leave=True) == Decision(
        [BrokerShuttingDown(0, world.epochs[0]), BrokerFenced(0, world.epochs[0])],
        BrokerHeartbeatAnswer(True, True),
    )


def test_a_late_heartbeat_does_not_bring_back_a_broker_that_left() -> None:
    world = Controlled(brokers=1)
    leaving = world.heartbeat(0, leave=True)
    assert isinstance(leaving, Decision)
    world.carry(leaving)
    assert world.heartbeat(0) == Decision([], BrokerHeartbeatAnswer(True, False))


def test_a_leaving_broker_is_given_nothing() -> None:
    world = Controlled(brokers=2)
    world.topic("shared", (0, 1))
    leaving = world.heartbeat(0, leave=True)
    assert isinstance(leaving, Decision)
    world.carry(leaving)
    world.topic("t", (0, 1))
    topic = world.image.topic("t")
    assert topic is not None
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (1, (1,))


# ---- with many partitions --------------------------------------------------------------------


def in_steps(world: Controlled, decide: Callable[[], Decision[R]]) -> tuple[list[int], R]:
    """How many partitions changed in each step, and the answer of the last."""
    steps = []
    while True:
        decision = decide()
        steps.append(sum(isinstance(one, PartitionChanged) for one in decision.records))
        world.machine.replay(decision.records)
        if not decision.more:
            return steps, decision.response


def left(broker_id: int) -> list[object]:
    """How five partitions stand when a broker has left them at once."""
    world = Controlled(brokers=3)
    topic_id = world.topic("t", *[(0, 1, 2)] * 5)
    world.register(broker_id, incarnation="new")
    return [world.standing(topic_id, index) for index in range(5)]


def test_a_broker_that_comes_anew_leaves_its_partitions_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = left(0)
    monkeypatch.setattr(brokers, "LEFT_AT_ONCE", 2)
    world = Controlled(brokers=3)
    topic_id = world.topic("t", *[(0, 1, 2)] * 5)
    before, asked = world.epochs[0], world.registration(0, incarnation="new")
    first = world.machine.brokers.register(asked, world.now_ms)
    world.machine.replay(first.records)
    assert (first.more, world.image.brokers[0].broker_epoch) == (True, before)
    assert [world.state(topic_id, index).leader for index in range(5)] == [1, 1, 0, 0, 0]
    steps, epoch = in_steps(world, lambda: world.machine.brokers.register(asked, world.now_ms))
    assert (steps, epoch) == ([2, 1], world.image.offset - 1)
    assert [world.standing(topic_id, index) for index in range(5)] == expected
    assert world.image.brokers[0].fenced


def test_a_silent_broker_is_fenced_with_the_last_partition_that_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "LEFT_AT_ONCE", 2)
    world = Controlled(brokers=2)
    topic_id = world.topic("t", *[(0, 1)] * 5)
    world.pass_time(6_001, 1)
    for leaders in ([1, 1, 0, 0, 0], [1, 1, 1, 1, 0]):
        assert len(world.expire()) == 2
        assert [world.state(topic_id, index).leader for index in range(5)] == leaders
        assert world.image.brokers[0].is_live
    assert world.expire()[0] == BrokerFenced(0, world.epochs[0])
    assert {world.state(topic_id, index).leader for index in range(5)} == {1}
    assert world.expire() == []


def test_a_broker_that_is_heard_again_meanwhile_keeps_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "LEFT_AT_ONCE", 2)
    world = Controlled(brokers=2)
    topic_id = world.topic("t", *[(0, 1)] * 3)
    world.pass_time(6_001, 1)
    world.expire()
    world.beat(0)
    assert world.expire() == []
    assert world.image.brokers[0].is_live
    assert [world.state(topic_id, index).leader for index in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_a_broker_that_handed_over_in_steps_waits_until_others_know(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(brokers, "LEFT_AT_ONCE", 2)
    world = Controlled(brokers=2)
    topic_id = world.topic("t", *[(0, 1)] * count)
    beat = BrokerHeartbeat(0, world.epochs[0], 1 << 40, wants_shutdown=True)

    def heartbeat() -> Decision[BrokerHeartbeatAnswer]:
        return world.machine.brokers.heartbeat(beat, world.now_ms)

    world.machine.brokers.followed(1, world.image.offset)
    steps, answer = in_steps(world, heartbeat)
    assert (sum(steps), max(steps) <= 2) == (count, True)
    assert not answer.should_shut_down
    assert world.image.brokers[0].shutting_down
    assert {world.state(topic_id, index).leader for index in range(count)} == {1}
    assert not in_steps(world, heartbeat)[1].should_shut_down
    world.machine.brokers.followed(1, world.image.offset)
    assert in_steps(world, heartbeat)[1].should_shut_down


def alone_on_a_broker_that_is_away(count: int) -> tuple[Controlled, TopicId]:
    """A broker was fenced that holds partitions which nobody else has."""
    world = Controlled(brokers=2)
    topic_id = world.topic("t", *[(0,)] * count)
    world.pass_time(6_001, 1)
    world.expire()
    assert {world.state(topic_id, index).leader for index in range(count)} == {NO_LEADER}
    return world, topic_id


def test_a_broker_that_comes_back_leads_its_partitions_again_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, topic_id = alone_on_a_broker_that_is_away(5)
    monkeypatch.setattr(partitions, "LOOKED_AT_ONCE", 2)
    beat = BrokerHeartbeat(0, world.epochs[0], 1 << 40)
    steps, answer = in_steps(world, lambda: world.machine.brokers.heartbeat(beat, 0))
    assert (steps, answer.fenced) == ([2, 2, 1], False)
    assert {world.state(topic_id, index).leader for index in range(5)} == {0}
    assert in_steps(world, lambda: world.machine.brokers.heartbeat(beat, 0))[0] == [0]


def test_the_next_controller_goes_on_with_the_partitions_of_a_broker_that_came_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, topic_id = alone_on_a_broker_that_is_away(5)
    monkeypatch.setattr(partitions, "LOOKED_AT_ONCE", 2)
    beat = BrokerHeartbeat(0, world.epochs[0], 1 << 40)
    begun = world.machine.brokers.heartbeat(beat, 0)
    assert begun.more
    world.machine.replay(begun.records)
    machine = ControllerMachine(CLUSTER, BrokerSettings(), random.Random(1))
    machine.replay(world.image.snapshot())
    steps = []
    for records in machine.settle():
        machine.replay(records)
        steps.append(len(records))
    assert steps == [2, 1]
    assert {one.leader for one in machine.image.topics[topic_id].partitions} == {0}


def test_a_broker_that_goes_while_it_comes_back_is_given_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, topic_id = alone_on_a_broker_that_is_away(5)
    monkeypatch.setattr(partitions, "LOOKED_AT_ONCE", 2)
    beat = BrokerHeartbeat(0, world.epochs[0], 1 << 40)
    world.machine.replay(world.machine.brokers.heartbeat(beat, world.now_ms).records)
    world.register(0, incarnation="later")
    assert world.image.brokers[0].fenced
    with pytest.raises(StaleBrokerEpoch):
        world.machine.brokers.heartbeat(beat, world.now_ms)
    assert {world.state(topic_id, index).leader for index in range(5)} == {NO_LEADER}


def test_leaving_broker_does_not_scan_partitions_of_other_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Controlled(brokers=4)
    world.topic("others", *[(1, 2, 3)] * 500)
    topic_id = world.topic("t", *[(0, 1)] * 3)
    looked_at: list[PartitionKey] = []
    change = world.machine.partitions.change

    def counted(key: PartitionKey, *args: Any, **kwargs: Any) -> PartitionChange:
        looked_at.append(key)
        return change(key, *args, **kwargs)

    monkeypatch.setattr(world.machine.partitions, "change", counted)
    world.pass_time(6_001, 1, 2, 3)
    world.expire()
    world.beat(0)
    assert looked_at == [(topic_id, index) for index in range(3)]


def test_a_broker_is_unregistered_with_the_last_partition_that_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "LEFT_AT_ONCE", 2)
    world = Controlled(brokers=2)
    world.topic("t", *[(0, 1)] * 5)
    steps, _ = in_steps(world, lambda: world.machine.brokers.unregister(0))
    assert steps == [2, 2, 1]
    assert set(world.image.brokers) == {1}


def test_an_unregistered_broker_is_not_eligible() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0,))
    decision = world.machine.brokers.unregister(0)
    assert decision.records == [
        PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), last_known_elr=(0,)),
        BrokerUnregistered(0, world.epochs[0]),
    ]


def test_an_unregistered_broker_is_out_of_everything_but_its_assignments() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    decision = world.machine.brokers.unregister(0)
    assert decision == Decision(
        [
            PartitionChanged(topic_id, 0, leader=1, isr=(1,)),
            BrokerUnregistered(0, world.epochs[0]),
        ],
        None,
    )
    world.carry(decision)
    with pytest.raises(BrokerIdNotRegistered, match="Broker ID 0 is not currently registered"):
        world.machine.brokers.unregister(0)
    with pytest.raises(StaleBrokerEpoch):
        world.machine.partitions_opened(PartitionsOpened(0, world.epochs[0], []))


def test_many_partitions_of_a_silent_broker_move_in_one_step() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", *[(0, 1, 2)] * 90, *[(0, 2, 1)] * 90)
    world.pass_time(6_001, 1, 2)
    fenced, *changes = world.expire()
    assert fenced == BrokerFenced(0, world.epochs[0])
    assert changes == [
        PartitionChanged(
            topic_id, at, leader=1 if at < 90 else 2, isr=(1, 2) if at < 90 else (2, 1)
        )
        for at in range(180)
    ]
