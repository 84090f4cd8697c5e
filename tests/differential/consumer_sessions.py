"""Sessions in the KIP-848 protocol, and of groups that switch between the protocols."""

from __future__ import annotations

from raylog.wire.messages.consumer_group_heartbeat import TopicPartitions
from tests.differential.participants import (
    Classic,
    Consumer,
    Outsider,
    assignment,
    subscription,
    together,
)
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage

NOBODY = "nobody"


SESSIONS = Sessions()


# ---- lives -----------------------------------------------------------------------------------


@SESSIONS.of("consumer-life-{0}", ["0 uniform", "1 uniform", "0 range", "1 range", "1 none"])
def life(stage: Stage, case: str) -> None:
    version, assignor = case.split()
    a = Consumer(
        stage,
        "a",
        "t2",
        "t3",
        version=int(version),
        assignor=None if assignor == "none" else assignor,
    )
    asks = Outsider(stage)
    a.join()
    asks.describe_consumers(version=int(version))
    a.heartbeat()
    a.confirm()
    asks.describe_consumers(version=int(version))
    a.commit({"t2": {0: 4}})
    asks.fetch(None)
    asks.list()
    asks.describe()
    a.leave()
    a.heartbeat()
    asks.describe_consumers(version=int(version))
    asks.list()
    asks.delete()
    asks.describe_consumers(version=int(version))


@SESSIONS.of("consumers-{0}", [2, 3, 4])
def several(stage: Stage, count: int) -> None:
    """Members come one by one, share, and go one by one."""
    members = [Consumer(stage, name, "t6") for name in "abcd"[:count]]
    asks = Outsider(stage)
    for number, member in enumerate(members):
        member.join()
        for _ in range(2):
            for other in members[: number + 1]:
                other.confirm()
        asks.describe_consumers()
    for number, member in enumerate(members):
        member.leave()
        for _ in range(2):
            for other in members[number + 1 :]:
                other.confirm()
        asks.describe_consumers()


# ---- reconciliation --------------------------------------------------------------------------


@SESSIONS.of("gives-up-slowly")
def slowly(stage: Stage) -> None:
    """A partition is not given to the next before the first has given it up."""
    a, b, asks = Consumer(stage, "a", "t2"), Consumer(stage, "b", "t2"), Outsider(stage)
    a.join()
    a.confirm()
    b.join()
    b.heartbeat()
    old = list(a.owned)
    a.heartbeat()
    asks.describe_consumers()
    a.heartbeat(topic_partitions=old)
    b.heartbeat()
    asks.describe_consumers()
    a.confirm()
    b.heartbeat()
    asks.describe_consumers()
    b.confirm()
    b.confirm()


@SESSIONS.of("says-it-owns-{0}", ["nothing", "more", "what is unknown"])
def owns(stage: Stage, case: str) -> None:
    a, b = Consumer(stage, "a", "t2"), Consumer(stage, "b", "t2")
    a.join()
    a.confirm()
    b.join()
    a.confirm()
    a.confirm()
    b.heartbeat()
    said = {
        "nothing": [],
        "more": [TopicPartitions(topic_id=stage.topic_id("t6"), partitions=[0, 1, 2])],
        "what is unknown": [TopicPartitions(topic_id=b"u" * 16, partitions=[0])],
    }[case]
    a.heartbeat(topic_partitions=said)
    a.heartbeat()
    a.confirm()
    Outsider(stage).describe_consumers()


@SESSIONS.of("old-epochs")
def epochs(stage: Stage) -> None:
    a, b = Consumer(stage, "a", "t2"), Consumer(stage, "b", "t2")
    a.join()
    a.confirm()
    b.join()
    a.confirm()
    a.confirm()
    b.confirm()
    for epoch in (a.epoch - 1, a.epoch + 1, a.epoch + 100, -3):
        a.heartbeat(member_epoch=epoch)
        a.heartbeat(member_epoch=epoch, topic_partitions=a.owned)
        a.commit({"t2": {0: 1}}, generation_id_or_member_epoch=epoch)
    a.commit({"t2": {0: 1}}, generation_id_or_member_epoch=-1)
    a.commit({"t2": {0: 1}}, member_id=NOBODY)
    for version in range(2, 11):
        a.commit({"t2": {0: version}}, version)
        a.commit({"t2": {0: version}}, version, generation_id_or_member_epoch=a.epoch - 1)
    Outsider(stage).commit({"t2": {0: 1}})
    a.join()
    a.heartbeat(member_epoch=0)


@SESSIONS.of("joins-again")
def again(stage: Stage) -> None:
    """A member that lost its memory joins with epoch 0 under the same id."""
    a, b = Consumer(stage, "a", "t2"), Consumer(stage, "b", "t2")
    a.join()
    a.confirm()
    b.join()
    a.confirm()
    a.confirm()
    b.confirm()
    a.join()
    a.confirm()
    b.confirm()
    Outsider(stage).describe_consumers()


# ---- refusals --------------------------------------------------------------------------------


@SESSIONS.of("consumer-refused-{0}", [0, 1])
def refused(stage: Stage, version: int) -> None:
    a = Consumer(stage, "a", "none", version=version)
    a.join(group_id="")
    a.join(member_id="")
    a.join(topic_partitions=None)
    a.join(topic_partitions=[TopicPartitions(topic_id=b"u" * 16, partitions=[0])])
    a.join(rebalance_timeout_ms=-1)
    a.join(rebalance_timeout_ms=0)
    a.join(subscribed_topic_names=None)
    a.join(subscribed_topic_names=[])
    a.join(instance_id="")
    a.join(rack_id="")
    a.join(server_assignor="none such")
    a.join(server_assignor="")
    a.join(member_epoch=-3)
    a.join(member_epoch=1)
    a.join(member_epoch=-1)
    a.join(member_epoch=-2)
    if version:
        a.join(subscribed_topic_regex="")
        a.join(subscribed_topic_regex="[")
        a.join(subscribed_topic_regex="(?=x)")
    Outsider(stage).describe_consumers()


@SESSIONS.of("consumer-heartbeat-refused-{0}", [0, 1])
def beat_refused(stage: Stage, version: int) -> None:
    a = Consumer(stage, "a", "t2", version=version)
    a.heartbeat(member_epoch=3, member_id=NOBODY)
    a.join()
    a.confirm()
    a.heartbeat(member_id=NOBODY)
    a.heartbeat(member_id="")
    a.heartbeat(group_id=f"{stage.session}.none")
    a.heartbeat(rebalance_timeout_ms=5000)
    a.heartbeat(server_assignor="none such")
    a.heartbeat(server_assignor="uniform")
    a.heartbeat(instance_id="i-other")
    a.heartbeat(rack_id="r")
    a.heartbeat(member_epoch=-1, member_id=NOBODY)
    a.heartbeat(member_epoch=-2)
    a.heartbeat()
    Outsider(stage).describe_consumers()


@SESSIONS.of("consumer-in-a-classic-call")
def mixed_calls(stage: Stage) -> None:
    """Classic requests to a member of KIP-848."""
    a = Consumer(stage, "a", "t2")
    a.join()
    a.confirm()
    classic = Classic(stage, "x")
    classic.heartbeat(member_id=a.member_id, generation_id=a.epoch)
    classic.sync(member_id=a.member_id, generation_id=a.epoch)
    classic.leave(who=[(a.member_id, None)])
    classic.leave(who=[(NOBODY, None)])
    a.heartbeat()
    Outsider(stage).delete()
    Outsider(stage).describe()


# ---- static members --------------------------------------------------------------------------


@SESSIONS.of("static-consumer-{0}", ["comes back", "another comes", "leaves for good"])
def static(stage: Stage, case: str) -> None:
    a = Consumer(stage, "a", "t3", instance="i-a")
    b = Consumer(stage, "b", "t3", instance="i-b")
    asks = Outsider(stage)
    a.join()
    a.confirm()
    b.join()
    for _ in range(2):
        a.confirm()
        b.confirm()
    second = Consumer(stage, "c", "t3", instance="i-b")
    second.join()  # the instance id is in use
    b.leave(-1 if case == "leaves for good" else -2)
    asks.describe_consumers()
    a.heartbeat()
    if case == "another comes":
        second.join()
        second.confirm()
        b.heartbeat()
        b.leave(-2)
    elif case == "comes back":
        b.join()
        b.confirm()
    else:
        a.confirm()
    asks.describe_consumers()


@SESSIONS.of("static-consumer-changes")
def changes(stage: Stage) -> None:
    a = Consumer(stage, "a", "t3", instance="i-a")
    a.join()
    a.confirm()
    a.leave(-2)
    second = Consumer(stage, "b", "t2", "t3", instance="i-a")
    second.join()
    second.settle(2)
    second.leave(-2)
    second.leave(-1)
    Outsider(stage).describe_consumers()


# ---- subscriptions ---------------------------------------------------------------------------


@SESSIONS.of("subscription-changes-{0}", ["range", "uniform"])
def subscription_changes(stage: Stage, assignor: str) -> None:
    a, asks = Consumer(stage, "a", "t2", assignor=assignor), Outsider(stage)
    a.join()
    a.confirm()
    for topics in (["t2", "t3"], ["t3"], ["none"], [], ["t3", "none", "t1"]):
        a.heartbeat(subscribed_topic_names=topics)
        a.settle(2)
        asks.describe_consumers()


@SESSIONS.of("different-subscriptions-{0}", ["range", "uniform"])
def different(stage: Stage, assignor: str) -> None:
    a = Consumer(stage, "a", "t1", assignor=assignor)
    b = Consumer(stage, "b", "t2", assignor=assignor)
    for member in (a, b):
        member.join()
        member.settle(2)
    a.settle(2)
    Outsider(stage).describe_consumers()


@SESSIONS.of("assignors-{0}", ["range uniform", "uniform range", "range none"])
def assignors(stage: Stage, case: str) -> None:
    """Members vote; the group takes what most ask for."""
    chosen = [None if name == "none" else name for name in case.split()]
    members = [
        Consumer(stage, name, "t1", assignor=assignor)
        for name, assignor in zip("abc", [chosen[0], chosen[1], chosen[1]], strict=True)
    ]
    for member in members:
        member.join()
        Outsider(stage).describe_consumers()


@SESSIONS.of("topic-comes-to-be")
def created(stage: Stage) -> None:
    """The coordinator sees new topics, new partitions and deleted topics by itself."""
    name = f"{stage.session}.later"
    a = Consumer(stage, "a", name, "t1")
    a.join()
    a.confirm()
    stage.topic("later", 2)
    a.until_assigned(3)
    a.confirm()
    stage.grow(name, 4)
    a.until_assigned(5)
    a.confirm()
    Outsider(stage).describe_consumers()
    stage.drop(name)
    a.until_assigned(1)


@SESSIONS.of("regex-{0}", ["one", "two", "with names"])
def regex(stage: Stage, case: str) -> None:
    pattern = f"{stage.session}\\.[ab]"
    first = stage.topic("a", 2)
    stage.topic("c", 3)
    names = ["t1"] if case == "with names" else []
    a = Consumer(stage, "a", *names, regex=pattern)
    a.join()
    a.until_assigned(2 + len(names))
    a.confirm()
    Outsider(stage).describe_consumers()
    if case == "two":
        b = Consumer(stage, "b", first)
        b.join()
        a.until_assigned(1)
        b.until_assigned(1)
        a.settle(2)
        b.settle(2)
        Outsider(stage).describe_consumers()
    a.heartbeat(subscribed_topic_regex="")
    a.until_assigned(len(names) if case != "two" else 0)
    Outsider(stage).describe_consumers()


# ---- migration -------------------------------------------------------------------------------


def classic(stage: Stage, name: str, *topics: str, **more: str) -> Classic:
    given = {"range": subscription(*topics, version=3)}
    return Classic(stage, name, protocols=given, **more)  # type: ignore[arg-type]  # an instance id


@SESSIONS.of("empty-classic-becomes-consumer")
def empty(stage: Stage) -> None:
    a, b, asks = classic(stage, "a", "t2"), Consumer(stage, "b", "t2"), Outsider(stage)
    together(a)
    a.commit({"t2": {0: 5}})
    a.leave()
    b.join()
    b.confirm()
    asks.list()
    asks.fetch(None)
    a.heartbeat()
    b.leave()
    asks.list()


@SESSIONS.of("offsets-become-{0}", ["consumer", "classic"])
def offsets(stage: Stage, kind: str) -> None:
    asks = Outsider(stage)
    asks.commit({"t2": {0: 5}})
    member = Consumer(stage, "b", "t2") if kind == "consumer" else Classic(stage, "b")
    member.join()
    asks.list()
    asks.fetch(None)


@SESSIONS.of("upgrade-{0}", ["one", "two", "static"])
def upgrade(stage: Stage, case: str) -> None:
    """A member of KIP-848 comes to a group of classic members."""
    more = {} if case == "one" else {"instance": "i-a"}
    a, asks = classic(stage, "a", "t6", **more), Outsider(stage)
    a.enter()
    a.sync({a.member_id: assignment({"t6": range(6)})})
    b = Consumer(stage, "b", "t6")
    b.join()
    asks.describe_consumers()
    asks.describe()
    asks.list()
    a.heartbeat()
    a.join()
    a.sync(given={})
    a.heartbeat()
    b.confirm()
    b.confirm()
    asks.describe_consumers()
    a.commit({"t6": {0: 1}})
    a.commit({"t6": {0: 1}}, generation_id_or_member_epoch=a.generation + 1)
    if case == "two":
        c = classic(stage, "c", "t6", instance="i-c")
        c.enter()
        c.sync(given={})
        a.heartbeat()
        a.join()
        a.sync(given={})
        b.confirm()
        b.confirm()
        c.heartbeat()
        asks.describe_consumers()
    a.leave()
    b.confirm()
    asks.describe_consumers()


@SESSIONS.of("downgrade")
def downgrade(stage: Stage) -> None:
    """The last member of KIP-848 goes: the rest is a classic group again."""
    a, asks, b = classic(stage, "a", "t6"), Outsider(stage), Consumer(stage, "b", "t6")
    b.join()
    b.confirm()
    a.enter()
    a.sync(given={})
    b.confirm()
    b.confirm()
    a.heartbeat()
    a.join()
    a.sync(given={})
    asks.describe_consumers()
    b.leave()
    asks.list()
    asks.describe()
    a.heartbeat()
    a.join()
    a.sync(given={a.member_id: assignment({"t6": [0]})})
    asks.describe()
    a.leave()


@SESSIONS.of("upgrade-refused-{0}", ["rebalancing", "not consumers", "other assignor", "no blob"])
def upgrade_refused(stage: Stage, case: str) -> None:
    b = Consumer(stage, "b", "t2")
    if case == "rebalancing":
        a = classic(stage, "a", "t2")
        together(a)
        classic(stage, "c", "t2").enter()
    elif case == "not consumers":
        a = Classic(stage, "a", protocol_type="connect")
        together(a)
    elif case == "other assignor":
        a = Classic(stage, "a", protocols={"odd": subscription("t2")})
        a.enter()
        a.sync({a.member_id: assignment({"t2": [0, 1]})})
    else:
        a = classic(stage, "a", "t2")
        a.enter()
        a.sync({a.member_id: b"no blob"})
    b.join()
    b.heartbeat()
    Outsider(stage).list()
    a.heartbeat()


@SESSIONS.of("classic-in-consumers-{0}", range(10))
def classic_joins(stage: Stage, version: int) -> None:
    """A classic member comes to a group of KIP-848, in every version."""
    b, a, asks = Consumer(stage, "b", "t2"), classic(stage, "a", "t2"), Outsider(stage)
    b.join()
    b.confirm()
    a.enter(version)
    a.heartbeat(min(version, 4))
    a.sync(given={}, version=min(version, 5))
    b.confirm()
    b.confirm()
    a.heartbeat(min(version, 4))
    a.join(version)
    a.sync(given={}, version=min(version, 5))
    a.sync(given={}, version=min(version, 5), generation_id=a.generation + 1)
    a.heartbeat(min(version, 4), member_id=NOBODY)
    a.heartbeat(min(version, 4), generation_id=a.generation + 1)
    asks.describe_consumers()
    a.leave(min(version, 5))
    asks.describe_consumers()


@SESSIONS.of("classic-refused-by-consumers")
def classic_refused(stage: Stage) -> None:
    b = Consumer(stage, "b", "t2")
    b.join()
    b.confirm()
    Classic(stage, "c", protocol_type="connect").join()
    a = classic(stage, "a", "t2")
    a.join(session_timeout_ms=1)
    a.join(protocols=[])
    a.join(member_id=NOBODY)
    a.protocols = {"none such": subscription("t2")}
    a.enter()
    Classic(stage, "d", protocols={"range": b"no blob"}).enter()
    Outsider(stage).describe_consumers()
