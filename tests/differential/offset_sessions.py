"""Sessions about committed offsets, and about listing, describing and deleting groups."""

from __future__ import annotations

from raylog.wire.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.offset_fetch import OffsetFetchRequest
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

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
METADATA_MAX = 4096


SESSIONS = Sessions()


# ---- committing ------------------------------------------------------------------------------


@SESSIONS.of("commit-{0}", COMMIT_VERSIONS)
def commit(stage: Stage, version: int) -> None:
    """Without a group: stored at once, and a group comes to be."""
    asks = Outsider(stage)
    asks.commit({"t2": {0: 10, 1: 11}, "t3": {2: 12}}, version)
    asks.commit({"t2": {0: 5}}, version, "said with it")
    asks.commit({"t2": {1: 6}}, version, None)
    asks.commit({"t1": {0: -1}}, version)
    asks.commit({"t1": {0: -5}}, version)
    asks.commit({"t1": {0: 1 << 62}}, version)
    asks.fetch(None)
    asks.describe()
    asks.list()


@SESSIONS.of("commit-refused-{0}", COMMIT_VERSIONS)
def refused(stage: Stage, version: int) -> None:
    asks = Outsider(stage)
    asks.commit({"t2": {0: 1, 7: 2}, "t1": {-1: 3}}, version)
    if version < 10:
        asks.commit({"none": {0: 1}, "t1": {0: 2}}, version)
        asks.commit({"": {0: 1}, "bad name": {0: 2}}, version)
    else:
        asks.commit({"unknown id": {0: 1}, "t1": {0: 2}}, version)
    asks.commit({"t2": {0: 1}}, version, "m" * METADATA_MAX)
    asks.commit({"t2": {0: 2}}, version, "m" * (METADATA_MAX + 1))
    asks.commit({"t2": {0: 3}}, version, "ä" * (METADATA_MAX // 2 + 1))
    asks.commit({"t1": {0: 3}}, version, member_id="nobody")
    asks.commit({"t1": {0: 3}}, version, generation_id_or_member_epoch=4)
    asks.commit({}, version)
    asks.commit({"t1": {}}, version)
    asks.fetch({"t1": [0], "t2": [0, 1]})


@SESSIONS.of("commit-in-a-group-{0}", COMMIT_VERSIONS)
def in_a_group(stage: Stage, version: int) -> None:
    """By members, by others, in every state."""
    a, b, asks = Classic(stage, "a"), Classic(stage, "b"), Outsider(stage)
    a.enter()
    a.commit({"t1": {0: 1}}, version)
    a.sync()
    a.commit({"t1": {0: 2}}, version)
    a.commit({"t1": {0: 3}}, version, generation_id_or_member_epoch=a.generation + 1)
    a.commit({"t1": {0: 4}}, version, generation_id_or_member_epoch=-1)
    a.commit({"t1": {0: 5}}, version, member_id="nobody")
    asks.commit({"t1": {0: 6}}, version)
    b.enter()
    a.commit({"t1": {0: 7}}, version)
    a.leave()
    b.sync()
    b.leave()
    asks.commit({"t1": {0: 8}}, version)
    b.commit({"t1": {0: 9}}, version)
    asks.fetch(None)


@SESSIONS.of("commit-one-partition-twice")
def twice(stage: Stage) -> None:
    parts = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        for offset in (3, 8, 5)
    ]
    topics = [OffsetCommitRequestTopic(name="t1", partitions=[part]) for part in parts]
    Outsider(stage).commit({}, topics=topics)
    Outsider(stage).fetch(None)
    topics = [OffsetCommitRequestTopic(name="t2", partitions=parts)]
    Outsider(stage).commit({}, topics=topics)
    Outsider(stage).fetch(None)


@SESSIONS.of("commit-with-retention-{0}", [2, 3, 4])
def retention(stage: Stage, version: int) -> None:
    for kept_ms in (0, 1, 60_000, -1, -2):
        Outsider(stage).commit({"t1": {0: 4}}, version, retention_time_ms=kept_ms)
    Outsider(stage).fetch({"t1": [0]})


@SESSIONS.of("no-name")
def no_name(stage: Stage) -> None:
    """A group whose name is empty may keep offsets, and that is all. Only this session has it."""
    asks = Outsider(stage, group="")
    asks.describe("")
    asks.describe_consumers("")
    asks.delete("")
    asks.forget({"t1": [0]})
    for version in COMMIT_VERSIONS:
        asks.fetch({"t1": [0]}, version)
        asks.commit({"t1": {0: version}}, version)
    for version in FETCH_VERSIONS:
        asks.fetch({"t1": [0]}, version)
    asks.describe("")
    asks.describe_consumers("")
    asks.forget({"t1": [0]})
    asks.commit({"t1": {0: 5}}, generation_id_or_member_epoch=3)
    asks.commit({"t1": {0: 5}}, member_id="nobody")
    asks.delete("")


# ---- fetching --------------------------------------------------------------------------------


@SESSIONS.of("fetch-{0}", FETCH_VERSIONS)
def fetch(stage: Stage, version: int) -> None:
    asks = Outsider(stage)
    asks.fetch({"t1": [0]}, version)
    if version >= 2:
        asks.fetch(None, version)
    asks.commit({"t2": {0: 10, 1: 11}, "t3": {2: 12}}, 9, "noted")
    asks.fetch({"t2": [0, 1, 5], "t3": [0, 2]}, version)
    asks.fetch({"none": [0]} if version < 10 else {"unknown id": [0], "t2": [1]}, version)
    asks.fetch({}, version)
    asks.fetch({"t2": []}, version)
    if version >= 2:
        asks.fetch(None, version)
    asks.fetch({"t2": [0, 0]}, version)


@SESSIONS.of("fetch-several-{0}", range(8, 11))
def several(stage: Stage, version: int) -> None:
    asks, more = Outsider(stage), Outsider(stage, group=f"{stage.session}.more")
    asks.commit({"t2": {0: 1}})
    more.commit({"t2": {1: 2}, "t1": {0: 3}})
    groups = [
        asks.fetched_group({"t2": [0, 1]}, version),
        more.fetched_group(None, version),
        more.fetched_group({"t3": [0]}, version, group_id=f"{stage.session}.none"),
    ]
    stage.step("x", OffsetFetchRequest(groups=groups), version)
    stage.step("x", OffsetFetchRequest(groups=groups, require_stable=True), version)
    stage.step("x", OffsetFetchRequest(groups=[]), version)


@SESSIONS.of("fetch-as-member-{0}", [9, 10])
def as_member(stage: Stage, version: int) -> None:
    """Member id and epoch are checked where they are told."""
    a, asks = Consumer(stage, "a", "t2"), Outsider(stage)
    a.join()
    a.settle()
    a.commit({"t2": {0: 3}})
    for member_id, epoch in (
        (a.member_id, a.epoch),
        (a.member_id, a.epoch - 1),
        (a.member_id, a.epoch + 1),
        (a.member_id, -1),
        ("nobody", a.epoch),
        ("nobody", -1),
        (None, a.epoch),
        (None, -1),
        ("", -1),
    ):
        asks.fetch({"t2": [0]}, version, member_id=member_id, member_epoch=epoch)
    a.leave()
    asks.fetch({"t2": [0]}, version, member_id=a.member_id, member_epoch=1)
    asks.fetch({"t2": [0]}, version)


@SESSIONS.of("fetch-as-classic-member-{0}", [9, 10])
def as_classic(stage: Stage, version: int) -> None:
    a, asks = Classic(stage, "a"), Outsider(stage)
    together(a)
    a.commit({"t2": {0: 3}})
    for member_id, epoch in ((a.member_id, a.generation), (a.member_id, 7), ("nobody", 3)):
        asks.fetch({"t2": [0]}, version, member_id=member_id, member_epoch=epoch)
    asks.fetch(
        {"t2": [0]}, version, group_id=f"{stage.session}.none", member_id="x", member_epoch=1
    )


# ---- forgetting ------------------------------------------------------------------------------


@SESSIONS.of("forget")
def forget(stage: Stage) -> None:
    """OffsetDelete of groups in every state."""
    asks, a = Outsider(stage), Classic(stage, "a", protocols={"range": subscription("t2")})
    asks.forget({"t1": [0]})
    asks.commit({"t1": {0: 1}, "t2": {0: 2, 1: 3}, "t3": {0: 4}})
    asks.forget({"t1": [0, 5], "none": [0]})
    asks.fetch(None)
    a.enter()
    asks.forget({"t2": [0], "t3": [0]})
    a.sync({a.member_id: assignment({"t2": [0, 1]})})
    asks.forget({"t2": [0, 1], "t3": [0], "none": [0]})
    asks.fetch(None)
    a.leave()
    asks.forget({"t2": [0]})
    asks.forget({})
    asks.fetch(None)


@SESSIONS.of("forget-of-consumers")
def of_consumers(stage: Stage) -> None:
    asks, a = Outsider(stage), Consumer(stage, "a", "t2")
    asks.commit({"t2": {0: 2, 1: 3}, "t3": {0: 4}})
    a.join()
    asks.forget({"t2": [0], "t3": [0, 1], "none": [0]})
    asks.fetch(None)
    a.leave()
    asks.forget({"t2": [0]})
    asks.fetch(None)


@SESSIONS.of("forget-the-last")
def forget_the_last(stage: Stage) -> None:
    """A group of offsets alone stays, Empty, when the last of them is deleted."""
    asks = Outsider(stage)
    asks.commit({"t1": {0: 1}})
    asks.forget({"t1": [0]})
    for version in (5, 6):
        asks.describe(version=version)
    asks.describe_consumers()
    asks.list()
    asks.fetch(None)
    asks.fetch({"t1": [0]})
    asks.forget({"t1": [0]})
    for version in (8, 9):
        asks.commit({"t1": {0: 1}}, version, generation_id_or_member_epoch=3)
    asks.commit({"t1": {0: 2}})
    asks.fetch(None)


@SESSIONS.of("forget-the-last-and-{0}", ["delete", "join", "join-as-consumer"])
def then(stage: Stage, what: str) -> None:
    """What becomes of a group that has lost its last offset."""
    asks, a, c = Outsider(stage), Classic(stage, "a"), Consumer(stage, "c", "t2")
    asks.commit({"t1": {0: 1}})
    asks.forget({"t1": [0]})
    if what == "delete":
        asks.delete()
    elif what == "join":
        a.enter()
        a.leave()
    else:
        c.join()
        c.leave()
    asks.describe()
    asks.describe_consumers()
    asks.list()
    asks.fetch(None)
    asks.forget({"t1": [0]})
    asks.delete()
    asks.list()
    asks.delete()


@SESSIONS.of("delete-offsets-{0}", range(3))
def delete_offsets(stage: Stage, version: int) -> None:
    """DeleteGroups of a group of offsets alone: all of it is gone at once."""
    asks = Outsider(stage)
    asks.commit({"t1": {0: 1}, "t2": {1: 2}})
    asks.delete(version=version)
    asks.describe()
    asks.describe_consumers()
    asks.list()
    asks.fetch(None)
    asks.forget({"t1": [0]})
    asks.commit({"t1": {0: 1}}, generation_id_or_member_epoch=3)
    asks.delete(version=version)


@SESSIONS.of("last-topic-is-deleted")
def last_topic_deleted(stage: Stage) -> None:
    """A group of offsets alone stays, Empty, when its only topic goes."""
    topic, asks = stage.topic("only", 1), Outsider(stage)
    asks.commit({topic: {0: 1}})
    stage.drop(topic)
    asked = OffsetFetchRequest(groups=[asks.fetched_group(None, 9)])
    stage.until("x", lambda: (asked, 9), lambda answer: not answer.groups[0].topics)
    asks.describe()
    asks.list()
    asks.forget({"t1": [0]})
    asks.delete()
    asks.describe()


@SESSIONS.of("topic-is-deleted")
def topic_deleted(stage: Stage) -> None:
    """Offsets of a deleted topic go with it, sooner or later."""
    topic, asks = stage.topic("short-lived", 2), Outsider(stage)
    asks.commit({topic: {0: 1, 1: 2}, "t1": {0: 3}})
    asks.fetch(None)
    stage.drop(topic)
    group = asks.fetched_group(None, 9)
    asked = OffsetFetchRequest(groups=[group])
    stage.until("x", lambda: (asked, 9), lambda answer: len(answer.groups[0].topics) == 1)


# ---- looking ---------------------------------------------------------------------------------


@SESSIONS.of("list-{0}", range(6))
def listing(stage: Stage, version: int) -> None:
    """Groups of all kinds and states, filtered."""
    a = Classic(stage, "a", group=f"{stage.session}.stable")
    b = Classic(stage, "b", group=f"{stage.session}.completing")
    c = Consumer(stage, "c", "t2", group=f"{stage.session}.consumer")
    e = Classic(stage, "e", group=f"{stage.session}.connect", protocol_type="connect")
    asks = Outsider(stage, group=f"{stage.session}.offsets")
    together(a)
    b.enter()
    c.join()
    e.enter()
    asks.commit({"t1": {0: 1}})
    asks.list(version)
    states = (
        ["Stable"], ["stable"], ["Empty", "CompletingRebalance"], ["none"], [""],
        ["Dead"], ["Assigning", "Reconciling"],
    )  # fmt: skip
    for wanted in states if version >= 4 else ():
        asks.list(version, states_filter=wanted)
    kinds = (["classic"], ["Consumer"], ["classic", "consumer"], ["none"], ["share"])
    for wanted in kinds if version >= 5 else ():
        asks.list(version, types_filter=wanted)
    if version >= 5:
        asks.list(version, types_filter=["consumer"], states_filter=["Stable"])


@SESSIONS.of("describe-{0}", range(7))
def describing(stage: Stage, version: int) -> None:
    a = Classic(stage, "a", instance="i-a", protocols=("x", "y"))
    c = Consumer(stage, "c", "t2", group=f"{stage.session}.consumer")
    asks = Outsider(stage)
    together(a)
    c.join()
    asks.describe(version=version)
    asks.describe(a.group, c.group, f"{stage.session}.none", a.group, version=version)
    if version >= 3:
        asks.describe(a.group, f"{stage.session}.none", version=version, allowed=True)


@SESSIONS.of("describe-consumers-{0}", [0, 1])
def describing_consumers(stage: Stage, version: int) -> None:
    a = Classic(stage, "a", group=f"{stage.session}.classic")
    c = Consumer(stage, "c", "t2", instance="i-c", rack="r1")
    asks = Outsider(stage)
    together(a)
    c.join()
    asks.describe_consumers(version=version)
    c.settle(1)
    asks.describe_consumers(c.group, a.group, f"{stage.session}.none", c.group, version=version)
    asks.describe_consumers(c.group, a.group, version=version, allowed=True)
    c.leave(-2)
    asks.describe_consumers(version=version)


@SESSIONS.of("delete-{0}", range(3))
def deleting(stage: Stage, version: int) -> None:
    a = Classic(stage, "a", group=f"{stage.session}.classic")
    c = Consumer(stage, "c", "t2", group=f"{stage.session}.consumer")
    asks = Outsider(stage)
    asks.commit({"t1": {0: 1}})
    together(a)
    c.join()
    asks.delete(asks.group, a.group, c.group, version=version)
    asks.fetch(None)
    a.leave()
    c.leave()
    asks.delete(a.group, a.group, c.group, f"{stage.session}.none", version=version)
    asks.list()
    asks.delete(a.group, version=version)
    asks.commit({"t1": {0: 1}})
    asks.fetch(None)
