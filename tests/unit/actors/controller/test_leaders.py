"""Requested elections, and automatic returns to preferred leaders."""

from collections.abc import Iterable, Iterator

import pytest

from raylog.actors.common_messages import PartitionKey
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    AlterPartitions,
    ConfigAlteration,
    ConfigOp,
    ElectLeaders,
    ElectOutcome,
    FeatureUpdate,
    FeatureUpgradeType,
    IsrChange,
    UpdateFeatures,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.metadata.features import ELIGIBLE_LEADERS
from raylog.actors.metadata.image import PartitionState
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerFenced,
    BrokerUnfenced,
    ConfigChanged,
    FeatureChanged,
    PartitionChanged,
    Record,
)
from raylog.wire.errors import ErrorCode
from tests.worlds.controller.machine import Controlled, silence


def elected(
    world: Controlled, *partitions: tuple[str, int], unclean: bool = False
) -> tuple[list[Record], list[tuple[ErrorCode, str | None]]]:
    asked = ElectLeaders(unclean, list(partitions), 0)
    decision = world.machine.leaders.elect(asked)
    outcomes = world.carry(decision)
    assert [(one.name, one.partition) for one in outcomes] == list(partitions)
    return decision.records, [(one.error, one.message) for one in outcomes]


# ---- asked for -------------------------------------------------------------------------------


def test_the_preferred_replica_leads_again_when_asked_for() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), (1, 2, 0))
    world.carry(Decision([PartitionChanged(topic_id, 0, leader=1)], None))
    records, outcomes = elected(world, ("t", 0), ("t", 1), ("t", 2), ("u", 0), ("t", 0))
    assert records == [PartitionChanged(topic_id, 0, leader=0)]
    assert outcomes == [
        (ErrorCode.NONE, None),
        (
            ErrorCode.ELECTION_NOT_NEEDED,
            "Leader election not needed for topic partition.",
        ),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-2"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as u"),
        (ErrorCode.NONE, None),
    ]


@pytest.mark.parametrize("alive", [(1, 2), (0, 1, 2)])
def test_a_preferred_replica_that_is_away_or_out_of_sync_does_not_lead(
    alive: tuple[int, ...],
) -> None:
    world = Controlled(brokers=3)
    world.topic("t", (0, 1, 2))
    silence(world, 1, 2)
    for broker_id in alive:
        world.beat(broker_id)
    records, outcomes = elected(world, ("t", 0))
    assert records == []
    assert [code for code, _ in outcomes] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]


def test_an_unclean_election_takes_anybody_who_lives() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2))
    led = world.topic("led", (1, 2))
    silence(world, 0)
    world.carry(Decision([PartitionChanged(led, 0, leader=1, isr=(1,))], None))
    silence(world)
    world.beat(1)
    records, outcomes = elected(world, ("t", 0), ("led", 0), unclean=True)
    assert records == [PartitionChanged(topic_id, 0, leader=1, isr=(1,), elr=(), last_known_elr=())]
    assert [code for code, _ in outcomes] == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]


def test_without_anybody_alive_there_is_no_leader_to_elect() -> None:
    world = Controlled(brokers=2)
    world.topic("t", (0, 1))
    silence(world)
    records, outcomes = elected(world, ("t", 0), unclean=True)
    assert records == []
    assert [code for code, _ in outcomes] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_asked_for_everything_only_what_there_is_to_do_is_answered() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), (1, 2, 0))
    world.topic("u", (2, 1))
    world.carry(Decision([PartitionChanged(topic_id, 1, leader=2)], None))
    assert world.machine.leaders.elect(ElectLeaders(False, None, 0)) == Decision(
        [PartitionChanged(topic_id, 1, leader=1)], [ElectOutcome("t", 1)]
    )


# ---- by itself -------------------------------------------------------------------------------


def test_leadership_goes_back_after_the_interval() -> None:
    world = Controlled(brokers=2, settings={"leader.imbalance.check.interval.seconds": "10"})
    balance = world.machine.leaders.balance
    topic_id = world.topic("t", (0, 1), (1, 0))
    assert balance(0).records == []
    world.carry(Decision([PartitionChanged(topic_id, 0, leader=1)], None))
    assert balance(9_999).records == []
    moves: list[Record] = [PartitionChanged(topic_id, 0, leader=0)]
    assert balance(10_000).records == moves
    assert balance(19_999).records == []
    assert balance(20_000).records == moves
    world.carry(Decision(moves, None))
    assert balance(30_000).records == []
    world.image.topics.clear()  # nothing is looked at while the metadata stays as it is
    assert balance(40_000).records == []


def test_nothing_is_looked_at_again_while_nothing_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    leaders = world.machine.leaders
    looks = 0
    look = leaders._displaced

    def counted(brokers: Iterable[int]) -> Iterator[tuple[PartitionKey, PartitionState]]:
        nonlocal looks
        looks += 1
        yield from look(brokers)

    monkeypatch.setattr(leaders, "_displaced", counted)
    now_ms = world.now_ms
    leaders.balance(now_ms)
    for _ in range(3):
        now_ms += 300_000
        assert leaders.balance(now_ms).records == []
    assert looks == 1
    world.carry(Decision([PartitionChanged(topic_id, 0, leader=1)], None))
    now_ms += 300_000
    assert leaders.balance(now_ms).records == [PartitionChanged(topic_id, 0, leader=0)]


def test_leadership_goes_back_only_to_replicas_in_sync() -> None:
    world = Controlled(brokers=2, settings={"leader.imbalance.check.interval.seconds": "1"})
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, leader=1, isr=(1,))], None))
    balance = world.machine.leaders.balance
    assert (balance(0).records, balance(1_000).records) == ([], [])


def test_leadership_stays_where_it_is_if_that_is_configured() -> None:
    settings = {"auto.leader.rebalance.enable": "false"}
    world = Controlled(brokers=2, settings=settings)
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, leader=1)], None))
    balance = world.machine.leaders.balance
    assert (balance(0).records, balance(10_000_000).records) == ([], [])


def test_many_leaderships_go_back_in_steps() -> None:
    world = Controlled(brokers=2, settings={"leader.imbalance.check.interval.seconds": "1"})
    topic_id = world.topic("t", *[(0, 1)] * 1_001)
    world.carry(
        Decision([PartitionChanged(topic_id, index, leader=1) for index in range(1_001)], None)
    )
    balance = world.machine.leaders.balance
    assert balance(0).records == []
    sizes = []
    for _ in range(7):
        decision = balance(1_000)
        sizes.append(len(decision.records))
        world.carry(decision)
    assert sizes == [200] * 5 + [1, 0]


# ---- eligible leader replicas ----------------------------------------------------------------


def test_elr_member_is_elected_when_the_isr_is_empty() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), configs={"min.insync.replicas": "2"})
    silence(world, 1, 2)
    assert world.standing(topic_id) == (1, (1, 2), ())
    silence(world, 2)
    assert world.standing(topic_id) == (2, (2,), (1,))
    silence(world)
    assert world.standing(topic_id) == (NO_LEADER, (), (1, 2))
    assert world.state(topic_id).last_known_elr == (2,)
    back = world.heartbeat(0)
    assert isinstance(back, Decision)
    assert back.records == [BrokerUnfenced(0, world.epochs[0])]
    back = world.heartbeat(1)
    assert isinstance(back, Decision)
    assert back.records == [
        BrokerUnfenced(1, world.epochs[1]),
        PartitionChanged(topic_id, 0, leader=1, isr=(1,), elr=(2,), last_known_elr=()),
    ]


def test_with_enough_in_sync_nobody_is_eligible_any_more() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), configs={"min.insync.replicas": "2"})
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,), elr=(1, 2))], None))
    world.carry(
        Decision([PartitionChanged(topic_id, 0, incarnations={0: "a", 1: "b", 2: "c"})], None)
    )
    isr = ((0, "a"), (2, "c"))
    change = IsrChange(topic_id, 0, 0, 2, isr)
    decision = world.machine.alter_partitions(AlterPartitions(0, world.epochs[0], [change]))
    assert decision.records == [PartitionChanged(topic_id, 0, isr=(0, 2), elr=())]


def test_last_leader_of_crashed_replicas_is_elected() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1), configs={"min.insync.replicas": "2"})
    for broker_id in (0, 1):
        world.register(broker_id, incarnation=f"after the crash {broker_id}")
    assert world.standing(topic_id) == (NO_LEADER, (), ())
    assert world.state(topic_id).last_known_elr == (1,)
    world.beat(0)
    assert world.state(topic_id).leader == NO_LEADER
    world.beat(1)
    assert world.standing(topic_id) == (1, (1,), ())
    assert world.state(topic_id).last_known_elr == ()


def test_a_lower_bar_ends_eligibility_and_a_higher_one_does_not() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), configs={"min.insync.replicas": "2"})
    other = world.topic("u", (0, 1, 2), configs={"min.insync.replicas": "2"})
    for one in (topic_id, other):
        world.carry(Decision([PartitionChanged(one, 0, isr=(0,), elr=(1,))], None))

    def altered(value: str) -> list[Record]:
        op = ConfigOp("min.insync.replicas", AlterOp.SET, value)
        asked = AlterConfigs([ConfigAlteration(2, "t", [op])])
        return world.machine.alter_configs(asked).records

    assert altered("3") == [ConfigChanged(2, "t", "min.insync.replicas", "3")]
    assert altered("1") == [
        ConfigChanged(2, "t", "min.insync.replicas", "1"),
        PartitionChanged(topic_id, 0, elr=()),
    ]


def test_without_the_feature_the_last_one_in_sync_stays_so() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1), configs={"min.insync.replicas": "2"})
    leaderless = world.topic("u", (1,))
    silence(world, 0)
    down = FeatureUpdate(ELIGIBLE_LEADERS, 0, FeatureUpgradeType.SAFE_DOWNGRADE)
    decision = world.machine.update_features(UpdateFeatures([down]))
    assert decision.records == [
        FeatureChanged(ELIGIBLE_LEADERS, 0, 5),
        PartitionChanged(topic_id, 0, elr=(), last_known_elr=()),
        PartitionChanged(leaderless, 0, isr=(1,), elr=(), last_known_elr=()),
    ]
    world.carry(decision)
    world.pass_time(6_001)
    assert world.expire() == [
        BrokerFenced(0, world.epochs[0]),
        PartitionChanged(topic_id, 0, leader=NO_LEADER),
    ]
    world.beat(1)
    assert world.image.topics[leaderless].partitions[0].leader == 1
    assert world.image.topics[topic_id].partitions[0].leader == NO_LEADER
