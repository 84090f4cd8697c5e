"""The problems that `raylog top` reports, and their order."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.cli.top import events, troubles
from raylog.cli.top.events import (
    BrokerSeen,
    ClusterSeen,
    CommitsSeen,
    DisksSeen,
    EndsSeen,
    GroupsSeen,
    HangingSeen,
    MinIsrSeen,
    PartAsked,
    PartFailed,
    QuorumSeen,
    TransactionsSeen,
)
from raylog.cli.top.machine import Watch
from raylog.cli.top.tables import broker_state
from raylog.cli.top.troubles import REBALANCE_LONG_MS, Severity, Trouble
from raylog.client import (
    ActiveProducer,
    HangingTransaction,
    LogDir,
    QuorumMember,
    QuorumView,
    TopicPartition,
    TransactionDescription,
)
from raylog.client.admin.groups import GroupListing
from raylog.wire.errors import KafkaStorageError
from tests.support.top_clusters import cluster, ends, partition, watching

ROOT = Path(__file__).parents[4]
WELL = cluster(("t", partition(0)), ("t", partition(1)))
GIB = 1024**3


def found(watch: Watch, now_ms: float = 0.0) -> list[Trouble]:
    return troubles.troubles(watch.known, now_ms)


def only(watch: Watch, now_ms: float = 0.0) -> Trouble:
    (one,) = found(watch, now_ms)
    return one


def transaction(age_s: float, timeout_s: float = 60, name: str = "copier") -> TransactionsSeen:
    now_ms = 1e12
    one = TransactionDescription(
        name,
        0,
        "Ongoing",
        1,
        0,
        int(timeout_s * 1_000),
        int(now_ms - age_s * 1_000),
        [TopicPartition("t", 0)],
    )
    return TransactionsSeen(now_ms, 1, [one])


def quorum(leader: int = 0, *caught_up_ms: int) -> QuorumSeen:
    voters = [QuorumMember(i, 5, at, at) for i, at in enumerate(caught_up_ms or (9, 9, 9))]
    return QuorumSeen(0, QuorumView(leader, 1, 5, voters, []))


def test_nothing_is_said_before_anything_is_known_and_nothing_is_wrong() -> None:
    assert found(Watch()) == []
    assert found(watching(WELL, quorum(), ends(0, t=[5, 5]), MinIsrSeen({}))) == []


def test_no_broker_answers() -> None:
    one = only(watching(PartFailed(0, events.CLUSTER, "NotConnected: refused")))
    assert (one.severity, one.kind) == (Severity.CRITICAL, "unreachable")
    assert "refused" in one.what
    lost = only(watching(at(1_000, 0), PartFailed(1_000, events.CLUSTER, "lost")), 91_000)
    assert lost.what == f"state unknown since {troubles.clock(0)}: no broker answers: lost"


def at(at_ms: float, unix_s: float) -> ClusterSeen:
    """A cluster that is well."""
    return replace(WELL, at_ms=at_ms, unix_s=unix_s)


def test_an_answer_that_is_overdue_is_reported() -> None:
    watch = watching(at(1_000, 86_399), PartAsked(events.CLUSTER, 4_000))
    watch.tick(6_000, 5_000)
    assert found(watch, 6_000) == []
    assert broker_state(watch.known, 0) == "live"
    watch.tick(6_001, 5_000)
    one = only(watch, 6_001)
    assert one.severity is Severity.CRITICAL
    assert one.what == (
        f"state unknown since {troubles.clock(86_399)}: no answer for 2 s about metadata"
    )
    assert broker_state(watch.known, 0) == "unknown"
    watch.handle(at(6_500, 86_405))
    watch.handle(PartAsked(events.CLUSTER, None))
    assert found(watch, 6_501) == []
    assert broker_state(watch.known, 0) == "live"


def test_no_controller() -> None:
    assert only(watching(WELL, quorum(leader=-1))).kind == "no-controller"
    late = only(watching(WELL, quorum(), PartFailed(0, events.QUORUM, "RequestTimedOut: late")))
    assert (late.kind, late.severity) == ("no-controller", Severity.CRITICAL)
    refused = PartFailed(0, events.QUORUM, "ClusterAuthorizationFailed: no", is_refused=True)
    assert only(watching(WELL, refused)).kind == "not-known"


def test_offline_partitions_by_name_and_the_broker_they_wait_for() -> None:
    offline = [("t", partition(i, leader=-1, replicas=(1,), isr=(1,))) for i in range(6)]
    first, second = found(watching(cluster(*offline, live=(0, 2))))
    assert (first.kind, second.kind) == ("offline", "broker-away")
    assert first.what.startswith("6 partitions offline (wait for broker 1): t-0, t-1, t-2, t-3 and")
    assert list(first.items) == [f"t-{i}" for i in range(6)]


def test_under_min_isr_is_worse_than_under_replicated() -> None:
    watch = watching(
        cluster(("t", partition(0, isr=(0,))), ("t", partition(1, isr=(0, 1)))),
        MinIsrSeen({"t": 2}),
    )
    worse, bad = found(watch)
    assert (worse.kind, list(worse.items)) == ("under-min-isr", ["t-0"])
    assert (bad.kind, list(bad.items)) == ("under-replicated", ["t-0", "t-1"])
    assert "out of sync on broker 2 (2), 1 (1)" in bad.what


def test_a_broker_that_is_fenced_and_one_that_does_not_answer_here() -> None:
    seen = cluster(("t", partition(0)), live=(0, 1), at_ms=5_000)
    brokers = {**seen.brokers, 2: BrokerSeen(2, "h", 1, is_fenced=True)}
    watch = watching(
        events.ClusterSeen(seen.at_ms, "c", brokers, seen.partitions),
        EndsSeen(0, {}, {1: "connection refused", 2: "connection refused"}),
    )
    fenced, silent = found(watch, 9_000)
    assert fenced.what.startswith("broker 2 is fenced (it sends no heartbeat), for 4 s or longer")
    assert silent.what == "broker 1 does not answer this machine: connection refused"


@pytest.mark.parametrize(
    ("usable", "total", "severity"),
    [(4, 100, Severity.SERIOUS), (14, 100, Severity.WARNING), (15, 100, None), (-1, -1, None)],
)
def test_disks(usable: int, total: int, severity: Severity | None) -> None:
    disk = LogDir(1, "/data", total * GIB, usable * GIB, [])
    assert [one.severity for one in found(watching(WELL, DisksSeen([disk])))] == (
        [] if severity is None else [severity]
    )


def test_a_disk_that_failed() -> None:
    disk = LogDir(1, "/data", -1, -1, [], KafkaStorageError("offline"))
    assert only(watching(WELL, DisksSeen([disk]))).kind == "disk-failed"


@pytest.mark.parametrize(
    ("age_s", "timeout_s", "severity"),
    [
        (59, 60, None),
        (61, 600, Severity.WARNING),
        (601, 600, Severity.SERIOUS),
        (-5, 60, None),  # the coordinator's clock is ahead of ours
    ],
)
def test_transactions(age_s: float, timeout_s: float, severity: Severity | None) -> None:
    wrong = found(watching(WELL, transaction(age_s, timeout_s)))
    assert [one.severity for one in wrong] == ([] if severity is None else [severity])


def test_names_from_outside_are_quoted_in_commands() -> None:
    one = only(watching(WELL, transaction(61, 600, name="a; reboot")))
    assert one.do == "raylog transactions describe 'a; reboot'"


def test_hanging_transactions_and_how_to_end_one() -> None:
    hanging = HangingTransaction(TopicPartition("t", 1), ActiveProducer(7, 0, 1, 2, -1, 1207))
    watch = Watch(" -b host:1")
    for event in (WELL, HangingSeen([hanging])):
        watch.handle(event)
    one = only(watch)
    assert one.severity is Severity.SERIOUS
    assert one.do == (
        "raylog transactions abort --topic t --partition 1 --start-offset 1207 -b host:1"
    )


def test_a_voter_that_is_behind() -> None:
    assert "voter 2" in only(watching(WELL, quorum(0, 50_000, 49_000, 20_000))).what
    assert found(watching(WELL, quorum(0, 50_000, 49_000, -1))) == []  # not told


def test_groups_that_fall_behind_the_worst_first() -> None:
    watch = watching(WELL)
    groups = [
        GroupListing("small", "classic", "consumer", "Stable", 0),
        GroupListing("idle", "classic", "consumer", "Empty", 0),
    ]
    watch.handle(GroupsSeen(0, groups))
    for at_s in range(0, 60, 5):
        watch.handle(ends(at_s * 1_000, t=[10_000 + 100 * at_s, 0]))
        committed = {TopicPartition("t", 0): 5_000 + 10 * at_s}
        watch.handle(
            CommitsSeen(at_s * 1_000, {"small": committed, "idle": {TopicPartition("t", 0): 0}})
        )
    idle, small = found(watch, 60_000)
    assert (idle.items, small.items) == (["idle"], ["small"])
    assert (idle.do, "it has no members" in idle.what) == ("start its consumers", True)
    assert "lag 9,950 (about 1 min 40 s), growing by 90/s; it reads 10 of 100" in small.what


def test_a_group_that_rebalances_for_long() -> None:
    group = GroupListing("g", "classic", "consumer", "PreparingRebalance", 0)
    watch = watching(WELL, GroupsSeen(0, [group]))
    assert found(watch, REBALANCE_LONG_MS - 1) == []
    assert "PreparingRebalance for 1 min" in only(watch, REBALANCE_LONG_MS).what


def test_unknown_troubles_are_sorted_last() -> None:
    watch = watching(
        PartFailed(0, events.DISKS, "ClusterAuthorizationFailed: no", is_refused=True),
        cluster(("t", partition(0, leader=-1, isr=()))),
    )
    assert [one.severity for one in found(watch)] == [Severity.CRITICAL, Severity.NOTE]


def test_documents_have_the_headings_that_are_named() -> None:
    source = (ROOT / "raylog" / "cli" / "top" / "troubles.py").read_text()
    named = re.findall(r'f"\{(OPERATIONS|RUNBOOK|TRANSACTIONS)\}#([a-z-]+)"', source)
    assert len(named) > 10
    for document, heading in named:
        text = (ROOT / str(getattr(troubles, document))).read_text()
        headings = [
            re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        ]
        assert heading in headings, f"{document}#{heading}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (7_260, "2 h 1 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert troubles.duration(seconds) == text
    assert troubles.duration(90_000 * 2) == "2 d 2 h"


def test_rates_as_texts() -> None:
    assert [troubles.rate(one) for one in (None, 0, 0.44, 12.4, 1_240)] == [
        "-",
        "0",
        "0.4",
        "12",
        "1,240",
    ]
