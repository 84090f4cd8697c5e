"""Sessions in the classic protocol: members' lives, rebalances, fencing, refusals."""

from __future__ import annotations

import dataclasses

from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequestProtocol
from tests.differential.participants import Classic, Outsider, assignment, subscription, together
from tests.differential.session import Sessions
from tests.differential.session_stage import Stage

NOBODY = "nobody"


SESSIONS = Sessions()


# ---- lives -----------------------------------------------------------------------------------


@SESSIONS.of("life-{0}", range(10))
def life(stage: Stage, version: int) -> None:
    """Join, sync, heartbeat, commit, leave in one version of JoinGroup and its company."""
    a, asks = Classic(stage, "a", protocols=("range", "roundrobin")), Outsider(stage)
    a.enter(version)
    a.heartbeat(min(version, 4))
    asks.describe(version=min(version, 6))
    a.sync(version=min(version, 5))
    a.heartbeat(min(version, 4))
    a.commit({"t2": {0: 7}}, version=max(2, version))
    asks.fetch({"t2": [0, 1]}, version=max(1, version))
    asks.describe(version=min(version, 6))
    asks.list(version=min(version, 5))
    a.leave(min(version, 5))
    a.heartbeat(min(version, 4))
    asks.describe(version=min(version, 6))
    asks.list(version=min(version, 5))
    asks.delete(version=min(version, 2))
    asks.describe(version=min(version, 6))
    asks.list(version=min(version, 5))


@SESSIONS.of("two-{0}", range(10))
def two(stage: Stage, version: int) -> None:
    """A second member joins, both are assigned, the leader leaves."""
    a, b, asks = Classic(stage, "a"), Classic(stage, "b"), Outsider(stage)
    a.enter(version)
    a.sync(version=min(version, 5))
    b.enter(version)
    asks.describe()
    a.heartbeat(by="outsider")
    a.join(version)
    b.sync(version=min(version, 5))
    asks.describe()
    a.heartbeat(by="outsider")
    a.sync(version=min(version, 5))
    asks.describe()
    b.heartbeat()
    a.leave(min(version, 5))
    b.heartbeat()
    b.join(version)
    b.sync(version=min(version, 5))
    b.leave(min(version, 5))


# ---- rebalances ------------------------------------------------------------------------------


@SESSIONS.of("three")
def three(stage: Stage) -> None:
    a, b, c = (Classic(stage, name) for name in "abc")
    together(a, b, c)
    Outsider(stage).describe()
    for member in (a, b, c):
        member.heartbeat()
    b.leave()
    a.heartbeat()
    c.heartbeat()
    a.join()
    c.join()
    for member in (a, c):
        member.sync()
    Outsider(stage).describe()


@SESSIONS.of("follower-joins-again")
def follower_again(stage: Stage) -> None:
    """A follower that joins with the same metadata is answered at once; with other it is not."""
    a, b = Classic(stage, "a"), Classic(stage, "b")
    together(a, b)
    b.join()
    b.heartbeat()
    b.protocols = {"range": subscription("t1")}
    b.join()
    a.heartbeat()
    a.join()
    a.sync()
    b.sync()


@SESSIONS.of("leader-joins-again")
def leader_again(stage: Stage) -> None:
    a, b = Classic(stage, "a"), Classic(stage, "b")
    together(a, b)
    a.join()
    b.heartbeat()
    b.join()
    b.sync()
    a.sync()
    Outsider(stage).describe()


@SESSIONS.of("joins-while-completing")
def completing(stage: Stage) -> None:
    """The rebalance is complete, the leader has not synced, and a member joins again."""
    a, b = Classic(stage, "a"), Classic(stage, "b")
    a.enter()
    a.sync()
    b.enter()
    a.join()
    b.join()  # same metadata: told its generation again
    b.sync()
    c = Classic(stage, "c")
    c.enter()
    Outsider(stage).describe()
    a.sync()
    a.join()
    b.join()
    for member in (a, b, c):
        if not stage.is_parked(member.name):
            member.sync()


@SESSIONS.of("sync-by-whom-{0}", ["follower first", "leader first"])
def sync_order(stage: Stage, order: str) -> None:
    a, b = Classic(stage, "a"), Classic(stage, "b")
    a.enter()
    a.sync()
    b.enter()
    a.join()
    for member in (a, b) if order == "leader first" else (b, a):
        member.sync()
    b.sync()
    a.sync(given={a.member_id: b"other", b.member_id: b"other still"})
    b.sync()


@SESSIONS.of("leader-forgets-somebody")
def forgotten(stage: Stage) -> None:
    a, b = Classic(stage, "a"), Classic(stage, "b")
    a.enter()
    a.sync()
    b.enter()
    a.join()
    b.sync()
    a.sync(given={a.member_id: b"all of it", NOBODY: b"for nobody"})
    Outsider(stage).describe()


@SESSIONS.of("vote-{0}", range(5))
def vote(stage: Stage, case: int) -> None:
    """Members vote for the first of their protocols that all know."""
    lists = [
        (("x", "y"), ("y", "x"), ("y", "x")),
        (("x", "y", "z"), ("z", "y"), ("y", "z")),
        (("x",), ("x", "y"), ("y",)),
        (("x", "y"), ("y",), ("x", "y")),
        (("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")),
    ][case]
    members = [Classic(stage, n, protocols=p) for n, p in zip("abc", lists, strict=True)]
    together(*members)
    Outsider(stage).describe()


@SESSIONS.of("generations")
def generations(stage: Stage) -> None:
    """Old and future generations, of members known and unknown."""
    a = Classic(stage, "a")
    together(a)
    for generation in (a.generation - 1, a.generation + 1, -1):
        a.heartbeat(generation_id=generation)
        a.sync(generation_id=generation)
        a.commit({"t1": {0: 1}}, generation_id_or_member_epoch=generation)
    a.heartbeat(member_id=NOBODY)
    a.sync(member_id=NOBODY)
    a.commit({"t1": {0: 1}}, member_id=NOBODY)
    a.commit({"t1": {0: 1}}, member_id="")
    a.leave(who=[(NOBODY, None), (a.member_id, None), (a.member_id, None)])


@SESSIONS.of("rebalancing-{0}", range(5))
def rebalancing(stage: Stage, version: int) -> None:
    """What a member is told while others are waited for."""
    a, b = Classic(stage, "a"), Classic(stage, "b")
    together(a)
    b.enter()
    a.heartbeat(version)
    a.sync(version=version)
    a.commit({"t1": {0: 3}}, version=version + 2)
    b.heartbeat(version, by="x")
    b.commit({"t1": {0: 3}}, version=version + 2) if not stage.is_parked("b") else None
    a.leave(version)
    Outsider(stage).describe()


@SESSIONS.of("leave-{0}", range(6))
def leave(stage: Stage, version: int) -> None:
    a, b = Classic(stage, "a"), Classic(stage, "b", instance="i-b")
    together(a, b)
    if version < 3:
        a.leave(version, member_id=NOBODY)
        a.leave(version, member_id="")
    else:
        a.leave(version, who=[])
        a.leave(version, who=[(NOBODY, None), ("", "i-none"), (a.member_id, "i-b"), ("", None)])
        a.leave(version, who=[("", "i-b")])
    a.leave(version)
    Outsider(stage).describe()
    a.leave(version)


@SESSIONS.of("leave-while-joining")
def leave_while_joining(stage: Stage) -> None:
    """One who is waited for leaves over another connection: the join is answered."""
    a, b = Classic(stage, "a"), Classic(stage, "b")
    together(a)
    b.enter()
    b.leave(by="x")
    a.heartbeat()
    a.join()
    a.sync()


@SESSIONS.of("leave-while-syncing")
def leave_while_syncing(stage: Stage) -> None:
    a, b = Classic(stage, "a"), Classic(stage, "b")
    a.enter()
    a.sync()
    b.enter()
    a.join()
    b.sync()
    a.leave()
    b.heartbeat()
    b.join()
    b.sync()


@SESSIONS.of("consumer-blobs-{0}", range(4))
def blobs(stage: Stage, version: int) -> None:
    """Subscriptions as real consumers send them."""
    given = {"range": subscription("t1", "t2", version=version)}
    a, b = Classic(stage, "a", protocols=given), Classic(stage, "b", protocols=given)
    a.enter()
    a.sync({a.member_id: assignment({"t1": [0], "t2": [0, 1]})})
    b.enter()
    a.join()
    b.sync()
    a.sync({a.member_id: assignment({"t2": [1]}), b.member_id: assignment({"t1": [0]})})
    Outsider(stage).describe()
    Outsider(stage).forget({"t2": [0], "t3": [0]})
    b.leave()
    a.leave()


@SESSIONS.of("disconnects")
def disconnects(stage: Stage) -> None:
    """A member whose connection ends while it waits is still a member."""
    a, b = Classic(stage, "a"), Classic(stage, "b")
    together(a)
    b.enter()
    stage.disconnect("b")
    Outsider(stage).describe()
    a.join()
    a.sync()
    Outsider(stage).describe()


# ---- refusals --------------------------------------------------------------------------------


@SESSIONS.of("join-refused-{0}", range(10))
def refused(stage: Stage, version: int) -> None:
    a = Classic(stage, "a")
    for session_ms in (99, 1_800_001, 0, -1):
        a.join(version, session_timeout_ms=session_ms)
    a.join(version, group_id="")
    a.join(version, protocols=[])
    a.join(version, protocol_type="")
    a.join(version, member_id=NOBODY)
    a.join(version, protocols=[JoinGroupRequestProtocol(name="", metadata=b"")])
    Outsider(stage).describe()


@SESSIONS.of("inconsistent-{0}", [0, 5, 9])
def inconsistent(stage: Stage, version: int) -> None:
    a, b = Classic(stage, "a"), Classic(stage, "b", protocols=("other",))
    together(a)
    b.enter(version)
    b.join(version, protocol_type="connect")
    a.join(version, protocol_type="connect")
    a.join(version, protocols=[])
    a.heartbeat()


@SESSIONS.of("sync-refused-{0}", range(6))
def sync_refused(stage: Stage, version: int) -> None:
    a = Classic(stage, "a")
    a.sync(version=version, generation_id=0)
    a.enter()
    a.sync(version=version, group_id="")
    a.sync(version=version, group_id=f"{stage.session}.none")
    a.sync(version=version, member_id="")
    a.sync(version=version, generation_id=a.generation + 1)
    if version >= 5:
        a.sync(protocol_type="connect")
        a.sync(protocol_name="another")
        a.sync(protocol_type=None, protocol_name=None)
    a.sync(version=version)


@SESSIONS.of("no-group-{0}", range(5))
def no_group(stage: Stage, version: int) -> None:
    a, asks = Classic(stage, "a"), Outsider(stage)
    a.heartbeat(version)
    a.heartbeat(version, group_id="", member_id=NOBODY, generation_id=3)
    a.heartbeat(version, member_id=NOBODY, generation_id=3)
    a.leave(version)
    a.leave(version, group_id="")
    a.commit({"t1": {0: 1}}, version + 2, generation_id_or_member_epoch=3, member_id=NOBODY)
    asks.describe(version=version)
    asks.describe(f"{stage.session}.none", version=version)
    asks.delete(version=min(version, 2))
    asks.delete(f"{stage.session}.none", version=min(version, 2))


@SESSIONS.of("find-coordinator-{0}", range(7))
def find(stage: Stage, version: int) -> None:
    keys = [stage.group, "other", ""]
    if version >= 4:
        asked = [FindCoordinatorRequest(coordinator_keys=keys)]
    else:
        asked = [FindCoordinatorRequest(key=key) for key in keys]
    for request in asked:
        stage.step("a", request, version)
    for kind in (3, -1) if version else ():
        stage.step("a", dataclasses.replace(asked[0], key_type=kind), version)


# ---- static members --------------------------------------------------------------------------


@SESSIONS.of("static-{0}", [5, 6, 7, 8, 9])
def static(stage: Stage, version: int) -> None:
    """A static member comes back under another id, and the old id is fenced."""
    a, b = Classic(stage, "a", instance="i-a"), Classic(stage, "b", instance="i-b")
    together(a, b, version=version)
    old = b.member_id
    b.join(version, member_id="")
    b.sync(version=min(version, 5))
    b.heartbeat(member_id=old)
    b.sync(member_id=old)
    b.commit({"t1": {0: 1}}, member_id=old)
    b.commit({"t1": {0: 1}})
    b.join(version, member_id=old)
    a.heartbeat()
    Outsider(stage).describe()


@SESSIONS.of("static-leader-{0}", [5, 8, 9])
def static_leader(stage: Stage, version: int) -> None:
    a, b = Classic(stage, "a", instance="i-a"), Classic(stage, "b", instance="i-b")
    together(a, b, version=version)
    a.join(version, member_id="")
    a.sync(version=min(version, 5), given={})
    b.heartbeat()
    a.heartbeat()
    a.leave(who=[("", "i-a")])
    b.heartbeat()
    b.join(version)
    b.sync(version=min(version, 5))


@SESSIONS.of("static-changes")
def changes(stage: Stage) -> None:
    """A static member comes back with another subscription: a rebalance."""
    a, b = Classic(stage, "a", instance="i-a"), Classic(stage, "b", instance="i-b")
    together(a, b)
    b.protocols = {"range": subscription("t1")}
    b.join(member_id="")
    a.heartbeat()
    a.join()
    a.sync()
    b.sync()
    b.protocols = {"other": subscription("t1")}
    b.join(member_id="")
    a.heartbeat()


@SESSIONS.of("static-replaced-while-waiting-{0}", ["joining", "syncing"])
def replaced(stage: Stage, phase: str) -> None:
    """Another process takes an instance id over while the first waits."""
    a, b = Classic(stage, "a", instance="i-a"), Classic(stage, "b", instance="i-b")
    together(a)
    b.enter()
    if phase == "syncing":
        a.join()
        b.sync()
    second = Classic(stage, "c", instance="i-b")
    second.join()
    if phase == "joining":
        a.join()
    else:
        a.heartbeat()
    a.sync()
    second.sync()
    Outsider(stage).describe()


@SESSIONS.of("static-wrong")
def wrong(stage: Stage) -> None:
    a = Classic(stage, "a", instance="i-a")
    together(a)
    a.heartbeat(group_instance_id="i-other")
    a.heartbeat(group_instance_id=None)
    a.heartbeat(member_id=NOBODY)
    a.heartbeat(generation_id=a.generation + 1)
    a.commit({"t1": {0: 1}}, group_instance_id="i-other")
    a.join(group_instance_id="i-other")
    a.join(member_id=NOBODY)
    a.sync(group_instance_id="i-other")
    a.leave(who=[(NOBODY, "i-a"), ("", "i-other"), (a.member_id, "i-a")])


@SESSIONS.of("static-names-{0}", range(6))
def names(stage: Stage, case: int) -> None:
    instance = ["", " ", "i" * 250, "i/slash", ".", "i" * 249][case]
    a = Classic(stage, "a", instance=instance)
    a.enter()
    a.sync()
    Outsider(stage).describe()


# ---- expiries --------------------------------------------------------------------------------


@SESSIONS.of("session-ends")
def session_ends(stage: Stage) -> None:
    """A member that falls silent is put out, and its assignment is free."""
    a, b = Classic(stage, "a"), Classic(stage, "b", session_ms=1500)
    together(a, b)
    asked = HeartbeatRequest(
        group_id=stage.group, generation_id=a.generation, member_id=a.member_id
    )
    stage.until("a", lambda: (asked, 4), lambda answer: answer.error_code != 0)
    a.join()
    a.sync()
    b.heartbeat()
    b.join()
    Outsider(stage).describe()


@SESSIONS.of("session-of-the-only-one-ends")
def only_one(stage: Stage) -> None:
    a = Classic(stage, "a", session_ms=1500)
    together(a)
    a.commit({"t1": {0: 5}})
    Outsider(stage).until_state("Empty")
    a.heartbeat()
    Outsider(stage).fetch({"t1": [0]})
    Outsider(stage).delete()


@SESSIONS.of("rebalance-without-{0}", ["dynamic", "static"])
def without(stage: Stage, kind: str) -> None:
    """Who does not join again within the rebalance timeout is out; a static one stays."""
    instance = "i-b" if kind == "static" else None
    a = Classic(stage, "a", rebalance_ms=1500)
    b = Classic(stage, "b", rebalance_ms=1500, instance=instance)
    together(a, b)
    c = Classic(stage, "c", rebalance_ms=1500)
    c.enter()
    a.join()
    stage.released("a", "c")
    Outsider(stage).describe()
    a.sync()
    c.sync()
    b.heartbeat()


@SESSIONS.of("leader-does-not-join-again")
def without_leader(stage: Stage) -> None:
    a, b = Classic(stage, "a", rebalance_ms=1500), Classic(stage, "b", rebalance_ms=1500)
    together(a, b)
    b.protocols = {"range": subscription("t1")}
    b.join()
    stage.released("b")
    b.sync()
    a.heartbeat()


@SESSIONS.of("leader-does-not-sync")
def no_sync(stage: Stage) -> None:
    """Nobody brings the assignment in time: those who wait are told to join again."""
    a, b = Classic(stage, "a", rebalance_ms=1500), Classic(stage, "b", rebalance_ms=1500)
    a.enter()
    a.sync()
    b.enter()
    a.join()
    b.sync()
    stage.released("b")
    a.heartbeat()
    a.sync()
    b.join()
    Outsider(stage).describe()


@SESSIONS.of("id-is-not-used")
def id_not_used(stage: Stage) -> None:
    """A member id that nobody joins with is forgotten after the session timeout."""
    a = Classic(stage, "a", session_ms=600)
    a.join()
    asked = HeartbeatRequest(group_id=stage.group, generation_id=-1, member_id=a.member_id)
    stage.until("a", lambda: (asked, 4), lambda answer: answer.error_code == 25)
    a.join()
