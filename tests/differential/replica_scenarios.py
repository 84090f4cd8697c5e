"""Scenarios about replicas: moving them, electing leaders, more partitions, lost brokers.

Broker 4 is stopped when they begin, so copies to it remain unfinished.
"""

from __future__ import annotations

from raylog.wire.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.differential.replica_asks import (
    PREFERRED,
    UNCLEAN,
    alter,
    elect,
    elect_all,
    grow,
    move,
    moves,
)
from tests.differential.replica_stage import TIMEOUT_MS, Scenarios, Stage

SCENARIOS = Scenarios()
of = SCENARIOS.of
MIN_ISR_2 = {"min.insync.replicas": "2"}


# ---- moves that are refused ------------------------------------------------------------------


@of("move-of-unknown", t=[[1]])
def move_of_unknown(stage: Stage) -> None:
    move(stage, ("none", 0, [1]))
    move(stage, ("t", 1, [1]))
    move(stage, ("t", -1, [1]))
    move(stage, (":", 0, [1]))
    stage.look("t")


@of("move-to-nobody", t=[[1]])
def move_to_nobody(stage: Stage) -> None:
    move(stage, ("t", 0, []))
    stage.look("t")


@of("move-to-stranger", t=[[1]])
def move_to_stranger(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 9]))
    move(stage, ("t", 0, [-1]))
    stage.look("t")


@of("move-to-one-twice", t=[[1]])
def move_to_one_twice(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 3, 2]))
    stage.look("t")


@of("call-off-nothing", t=[[1]])
def call_off_nothing(stage: Stage) -> None:
    move(stage, ("t", 0, None))
    move(stage, ("none", 0, None))
    move(stage, ("t", 7, None))
    stage.look("t")


@of("one-of-two-is-refused", t=[[1], [1]])
def one_of_two(stage: Stage) -> None:
    move(stage, ("t", 0, [9]), ("t", 1, [2]))
    stage.look("t")


@of("move-of-one-partition-twice", t=[[1]])
def twice(stage: Stage) -> None:
    partitions = [ReassignablePartition(partition_index=0, replicas=[one]) for one in (2, 3)]
    alter(stage, [ReassignableTopic(name=stage.topic("t"), partitions=partitions)])
    stage.look("t")


@of("move-of-nothing", t=[[1]])
def move_of_nothing(stage: Stage) -> None:
    alter(stage, [])
    alter(stage, [ReassignableTopic(name=stage.topic("t"), partitions=[])])
    alter(stage, [ReassignableTopic(name=stage.topic("none"), partitions=[])])


@of("factor-must-stay-grow", t=[[1]])
def factor_grows(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 2]), factor_may_change=False)
    stage.look("t")


@of("factor-must-stay-shrink", t=[[1, 2]])
def factor_shrinks(stage: Stage) -> None:
    move(stage, ("t", 0, [2]), factor_may_change=False)
    stage.look("t")


@of("factor-must-stay-and-does", t=[[1, 2]])
def factor_stays(stage: Stage) -> None:
    move(stage, ("t", 0, [3, 1]), factor_may_change=False)
    stage.look("t")


@of("factor-must-stay-under-way", t=[[1, 2]])
def factor_under_way(stage: Stage) -> None:
    """What counts is the number that the move under way leads to."""
    move(stage, ("t", 0, [1, 4]))
    move(stage, ("t", 0, [1, 2, 4]), factor_may_change=False)
    move(stage, ("t", 0, [4]), factor_may_change=False)
    move(stage, ("t", 0, [4, 3]), factor_may_change=False)
    stage.look("t")


@of("factor-must-stay-growing", t=[[1]])
def factor_growing(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 4]))
    move(stage, ("t", 0, [1, 2]), factor_may_change=False)
    move(stage, ("t", 0, [2]), factor_may_change=False)
    stage.look("t")


@of("factor-must-stay-call-off", t=[[1]])
def factor_call_off(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 4]))
    move(stage, ("t", 0, None), factor_may_change=False)
    stage.look("t")


# ---- moves that end --------------------------------------------------------------------------


@of("move-to-where-it-is", t=[[1, 2]])
def where_it_is(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 2]))
    stage.look("t")


@of("another-order", t=[[1, 2, 3]])
def another_order(stage: Stage) -> None:
    move(stage, ("t", 0, [3, 2, 1]))
    stage.look("t")


@of("move-one", t=[[1]])
def move_one(stage: Stage) -> None:
    move(stage, ("t", 0, [2]))
    stage.look("t")


@of("move-keeps-its-leader", t=[[1, 2]])
def keeps_leader(stage: Stage) -> None:
    move(stage, ("t", 0, [3, 1]))
    stage.look("t")


@of("move-loses-its-leader", t=[[1, 2]])
def loses_leader(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 3]))
    stage.look("t")


@of("more-copies", t=[[1]])
def more_copies(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 2, 3]))
    stage.look("t")


@of("fewer-copies", t=[[1, 2, 3]])
def fewer_copies(stage: Stage) -> None:
    move(stage, ("t", 0, [2]))
    stage.look("t")


@of("move-many", t=[[1], [2], [3], [1]])
def move_many(stage: Stage) -> None:
    move(stage, ("t", 0, [2]), ("t", 1, [3]), ("t", 2, [1]), ("t", 3, [2, 3]))
    stage.look("t")


@of("away-from-the-stopped", t=[[4, 1]])
def away_from_stopped(stage: Stage) -> None:
    stage.look("t")
    move(stage, ("t", 0, [1, 2]))
    stage.look("t")


@of("order-with-the-stopped", t=[[1, 4]])
def order_with_stopped(stage: Stage) -> None:
    move(stage, ("t", 0, [4, 1]))
    stage.look("t")


@of("drop-the-stopped", t=[[1, 2, 4]])
def drop_stopped(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 2]))
    stage.look("t")


# ---- moves under way -------------------------------------------------------------------------


@of("under-way", t=[[1]])
def under_way(stage: Stage) -> None:
    move(stage, ("t", 0, [4]))
    stage.look("t")
    moves(stage, {"t": [0, 1, -1], "none": [0]})
    move(stage, ("t", 0, [4]))
    stage.look("t")


@of("call-off", t=[[1, 2]])
def call_off(stage: Stage) -> None:
    move(stage, ("t", 0, [3, 4]))
    stage.look("t")
    move(stage, ("t", 0, None))
    stage.look("t")
    move(stage, ("t", 0, None))


@of("call-off-another-order", t=[[1, 2, 3]])
def call_off_order(stage: Stage) -> None:
    move(stage, ("t", 0, [3, 4, 1]))
    stage.look("t")
    move(stage, ("t", 0, None))
    stage.look("t")


@of("back-by-hand", t=[[1, 2]])
def back_by_hand(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 4]))
    move(stage, ("t", 0, [1, 2]))
    stage.look("t")


@of("another-goal", t=[[1]])
def another_goal(stage: Stage) -> None:
    move(stage, ("t", 0, [4]))
    move(stage, ("t", 0, [2]))
    stage.look("t")


@of("another-goal-under-way", t=[[1, 2]])
def another_goal_under_way(stage: Stage) -> None:
    move(stage, ("t", 0, [4, 3]))
    move(stage, ("t", 0, [2, 4]))
    stage.look("t")
    move(stage, ("t", 0, None))
    stage.look("t")


@of("everywhere", t=[[1]])
def everywhere(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 2, 3, 4]))
    stage.look("t")
    move(stage, ("t", 0, [1, 2, 3]))
    stage.look("t")


@of("only-the-stopped-stays", t=[[1, 4]])
def only_stopped_stays(stage: Stage) -> None:
    move(stage, ("t", 0, [4]))
    stage.look("t")
    move(stage, ("t", 0, None))
    stage.look("t")


@of("refused-while-under-way", t=[[1]])
def refused_under_way(stage: Stage) -> None:
    move(stage, ("t", 0, [4]))
    move(stage, ("t", 0, [9]))
    move(stage, ("t", 0, []))
    stage.look("t")


@of("one-of-several-called-off", t=[[1], [2]])
def one_called_off(stage: Stage) -> None:
    move(stage, ("t", 0, [4]), ("t", 1, [4]))
    move(stage, ("t", 0, None), ("t", 1, [2, 4]))
    stage.look("t")


@of("grow-while-it-moves", t=[[1]])
def grow_under_way(stage: Stage) -> None:
    """New partitions have as many replicas as the first one while it moves."""
    move(stage, ("t", 0, [1, 4]))
    grow(stage, "t", 2, [[2]])
    grow(stage, "t", 2, [[2, 3]])
    stage.look("t")


@of("leaderless-moves", t=[[4]])
def leaderless(stage: Stage) -> None:
    """Nobody leads: the move is under way until somebody does."""
    stage.look("t")
    move(stage, ("t", 0, [1]))
    stage.look("t")
    move(stage, ("t", 0, None))
    stage.look("t")


@of("leaderless-strict-moves", MIN_ISR_2, t=[[4]])
def leaderless_strict(stage: Stage) -> None:
    move(stage, ("t", 0, [1, 4]))
    stage.look("t")


# ---- lists of moves --------------------------------------------------------------------------


@of("moves-of-nothing", t=[[1]])
def moves_of_nothing(stage: Stage) -> None:
    moves(stage, {})
    moves(stage, None)
    moves(stage, {"t": []})
    moves(stage, {"none": [0], "t": [0, 0, 9]})


@of("moves-of-some", a=[[1], [2]], b=[[1]])
def moves_of_some(stage: Stage) -> None:
    move(stage, ("a", 0, [1, 4]), ("a", 1, [4]), ("b", 0, [4, 1]))
    moves(stage, None)
    moves(stage, {"a": [1]})
    moves(stage, {"b": [0], "a": [0, 0]})
    moves(stage, {"a": []})


# ---- elections -------------------------------------------------------------------------------


@of("elect-who-leads", t=[[1, 2]])
def elect_who_leads(stage: Stage) -> None:
    elect(stage, PREFERRED, ("t", [0]), versions=[0, 1, 2])
    elect(stage, UNCLEAN, ("t", [0]), versions=[1, 2])
    stage.look("t")


@of("elect-unknown", t=[[1]])
def elect_unknown(stage: Stage) -> None:
    for kind in (PREFERRED, UNCLEAN):
        elect(stage, kind, ("none", [0]), ("t", [1, -1]), (":", [0]))


@of("elect-preferred", t=[[1, 2]])
def elect_preferred(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 1]))
    elect(stage, UNCLEAN, ("t", [0]))
    elect(stage, PREFERRED, ("t", [0]))
    stage.look("t")
    elect(stage, PREFERRED, ("t", [0]))


@of("elect-preferred-v0", t=[[1, 2]])
def elect_preferred_v0(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 1]))
    elect(stage, PREFERRED, ("t", [0]), versions=[0])
    stage.look("t")


@of("elect-the-stopped", t=[[4, 1]])
def elect_stopped(stage: Stage) -> None:
    elect(stage, PREFERRED, ("t", [0]))
    elect(stage, UNCLEAN, ("t", [0]))
    stage.look("t")


@of("elect-nobody-there", t=[[4]])
def elect_nobody(stage: Stage) -> None:
    elect(stage, PREFERRED, ("t", [0]))
    elect(stage, UNCLEAN, ("t", [0]))
    stage.look("t")


@of("elect-uncleanly", t=[[4]])
def elect_uncleanly(stage: Stage) -> None:
    """A replica that holds nothing leads, because somebody says so."""
    move(stage, ("t", 0, [4, 1]))
    elect(stage, PREFERRED, ("t", [0]))
    elect(stage, UNCLEAN, ("t", [0]))
    stage.look("t")


@of("elect-eligible", MIN_ISR_2, t=[[4, 1]])
def elect_eligible(stage: Stage) -> None:
    stage.look("t")
    elect(stage, PREFERRED, ("t", [0]))
    elect(stage, UNCLEAN, ("t", [0]))
    stage.look("t")


@of("elect-several", t=[[1, 2], [4, 1], [1, 3], [2, 4]])
def elect_several(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 1]), ("t", 2, [3, 1]))
    elect(stage, PREFERRED, ("t", [0, 1, 2, 3, 9]), ("none", [0]))
    stage.look("t")


@of("elect-one-twice", t=[[1, 2]])
def elect_one_twice(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 1]))
    elect(stage, PREFERRED, ("t", [0, 0]))
    elect(stage, PREFERRED, ("t", [0]), ("t", [0]))
    stage.look("t")


@of("elect-nothing", t=[[1]])
def elect_nothing(stage: Stage) -> None:
    elect(stage, PREFERRED)
    elect(stage, PREFERRED, ("t", []), versions=[0, 1, 2])
    elect(stage, 9, ("t", [0]), versions=[1, 2])


@of("elect-while-it-moves", t=[[1]])
def elect_while_moving(stage: Stage) -> None:
    move(stage, ("t", 0, [4, 1]))
    elect(stage, PREFERRED, ("t", [0]))
    stage.look("t")


@of("elect-everywhere", t=[[1, 2], [3, 1]])
def elect_everywhere(stage: Stage) -> None:
    move(stage, ("t", 0, [2, 1]))
    elect_all(stage, PREFERRED)
    stage.look("t")
    elect_all(stage, PREFERRED)


# ---- more partitions -------------------------------------------------------------------------


@of("grow-not-at-all", t=[[1], [2]])
def grow_not(stage: Stage) -> None:
    grow(stage, "t", 2)
    grow(stage, "t", 1)
    grow(stage, "t", 0)
    grow(stage, "t", -1)
    stage.look("t")


@of("grow-unknown", t=[[1]])
def grow_unknown(stage: Stage) -> None:
    grow(stage, "none", 2)
    grow(stage, ":", 2)
    grow(stage, "t", 2, times=2)


@of("grow-with-assignments", t=[[1, 2]])
def grow_placed(stage: Stage) -> None:
    grow(stage, "t", 3, [[2, 3], [3, 1]], validate_only=True)
    stage.look("t")
    grow(stage, "t", 3, [[2, 3], [3, 1]])
    stage.look("t")


@of("grow-with-too-few-or-many-assignments", t=[[1]])
def grow_miscounted(stage: Stage) -> None:
    grow(stage, "t", 3, [[2]])
    grow(stage, "t", 2, [[2], [3]])
    grow(stage, "t", 2, [])
    grow(stage, "t", 1, [])
    stage.look("t")


@of("grow-on-strangers", t=[[1, 2]])
def grow_on_strangers(stage: Stage) -> None:
    grow(stage, "t", 2, [[2, 9]])
    grow(stage, "t", 2, [[-1, 1]])
    grow(stage, "t", 2, [[2, 2]])
    grow(stage, "t", 2, [[]])
    stage.look("t")


@of("grow-with-another-factor", t=[[1, 2]])
def grow_unevenly(stage: Stage) -> None:
    grow(stage, "t", 2, [[1]])
    grow(stage, "t", 2, [[1, 2, 3]])
    grow(stage, "t", 3, [[1, 2], [3]])
    stage.look("t")


@of("grow-on-the-stopped", t=[[1]])
def grow_on_stopped(stage: Stage) -> None:
    grow(stage, "t", 2, [[4]])
    stage.look("t")


@of("grow-with-the-stopped", t=[[1, 2]])
def grow_with_stopped(stage: Stage) -> None:
    grow(stage, "t", 3, [[4, 2], [3, 4]])
    stage.look("t")


# ---- new topics ------------------------------------------------------------------------------


@of("create-placed")
def create_placed(stage: Stage) -> None:
    stage.create({"t": [[3, 1], [2, 3]]})
    stage.look("t")


@of("create-with-the-stopped")
def create_with_stopped(stage: Stage) -> None:
    stage.create({"t": [[4, 1], [2, 4]]})
    stage.look("t")


@of("create-on-the-stopped")
def create_on_stopped(stage: Stage) -> None:
    stage.create({"t": [[4]]})
    stage.create({"t": [[1], [4]]})
    stage.look("t")


@of("create-misplaced")
def create_misplaced(stage: Stage) -> None:
    stage.create({"a": [[9]], "b": [[1, 1]], "c": [[]], "d": [[1], [1, 2]], "e": [[1, -1]]})


@of("create-more-copies-than-brokers")
def create_too_many(stage: Stage) -> None:
    def new(name: str, copies: int) -> CreatableTopic:
        return CreatableTopic(name=stage.topic(name), num_partitions=1, replication_factor=copies)

    topics = [new("four", 4), new("five", 5), new("zero", 0), new("less", -2)]
    stage.ask(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=True), 7)


# ---- descriptions ----------------------------------------------------------------------------


@of("metadata", t=[[1, 2], [4, 1]], only=[[4]])
def metadata(stage: Stage) -> None:
    stage.look("t", "only")
    asked = [MetadataRequestTopic(name=stage.topic(name)) for name in ("t", "only", "none")]
    stage.ask(MetadataRequest(topics=asked), *range(1, 14))


@of("metadata-strict", MIN_ISR_2, t=[[1, 4], [4, 1], [2, 1]], three=[[4, 1, 2], [1, 2, 3]])
def metadata_strict(stage: Stage) -> None:
    stage.look("t", "three")


@of("pages", a=[[1], [2], [3]], b=[[1, 3], [4, 2]])
def pages(stage: Stage) -> None:
    def page(limit: int, *names: str, at: tuple[str, int] | None = None) -> None:
        cursor = (
            None if at is None else Cursor(topic_name=stage.topic(at[0]), partition_index=at[1])
        )
        asked = [TopicRequest(name=stage.topic(name)) for name in names]
        request = DescribeTopicPartitionsRequest(
            topics=asked, response_partition_limit=limit, cursor=cursor
        )
        stage.ask(request, 0)

    stage.look("a", "b")
    page(2, "b", "a")
    page(2, "b", "a", at=("a", 2))
    page(2, "a", "b", at=("b", 1))
    page(2, "a", "b", at=("a", 9))
    page(2, "a", at=("b", 0))
    page(2, "a", "none", at=("none", 0))
    page(2000, "none", "a")
    page(0, "a", "b")
    page(2, "a", "a")


@of("cluster")
def cluster(stage: Stage) -> None:
    stage.ask(DescribeClusterRequest(), 0, 1, 2)
    stage.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    stage.ask(DescribeClusterRequest(endpoint_type=2), 1, 2)
    stage.ask(DescribeClusterRequest(endpoint_type=9), 1, 2)


# ---- a broker is forgotten: these come last --------------------------------------------------


@of("unregister", keeps=[[1, 4]], leads=[[4, 1]], only=[[4]], moves=[[1]])
def unregister(stage: Stage) -> None:
    move(stage, ("moves", 0, [4]))
    for broker_id in (9, -1, 4):
        stage.ask(UnregisterBrokerRequest(broker_id=broker_id), 0)
    stage.cluster()
    stage.look("keeps", "leads", "only", "moves")
    stage.ask(UnregisterBrokerRequest(broker_id=4), 0)


@of("unregistered-and-moves", keeps=[[1, 4]], only=[[4]], moves=[[1]])
def unregistered(stage: Stage) -> None:
    move(stage, ("moves", 0, [4]))
    move(stage, ("keeps", 0, [4, 1]))
    move(stage, ("keeps", 0, [1, 2]))
    move(stage, ("only", 0, [1]))
    stage.look("keeps", "only", "moves")


@of("unregistered-and-elected", leads=[[4, 1]], only=[[4]])
def unregistered_elected(stage: Stage) -> None:
    elect(stage, PREFERRED, ("leads", [0]), ("only", [0]))
    elect(stage, UNCLEAN, ("leads", [0]), ("only", [0]))
    stage.look("leads", "only")


@of("unregistered-and-placed", t=[[1, 2]])
def unregistered_placed(stage: Stage) -> None:
    stage.create({"new": [[1, 4]]})
    grow(stage, "t", 2, [[1, 4]])
    stage.look("t")
