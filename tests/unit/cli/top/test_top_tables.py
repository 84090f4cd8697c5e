"""Rows of `raylog top`: contents, order, filter and texts."""

import pytest

from raylog.cli.top.events import (
    BrokerMetrics,
    CommitsSeen,
    DisksSeen,
    EndsSeen,
    GroupsSeen,
    MetricsSeen,
    TransactionsSeen,
)
from raylog.cli.top.machine import Watch
from raylog.cli.top.tables import (
    BROKERS,
    GROUPS,
    PARTITIONS,
    TABLES,
    TOPICS,
    TRANSACTIONS,
    Choice,
    Table,
    details,
    view,
)
from raylog.client import LogDir, TopicPartition, TransactionDescription
from raylog.client.admin.groups import GroupListing
from tests.support.top_clusters import cluster, ends, partition, watching


@pytest.fixture
def watch() -> Watch:
    """Broker 1 is away; topic a is quick, b slow, c without a leader."""
    return watching(
        cluster(
            ("a", partition(0)),
            ("a", partition(1, leader=2, isr=(0, 2))),
            ("b", partition(0, leader=2)),
            ("c", partition(0, leader=-1, replicas=(1,), isr=(1,))),
            live=(0, 2),
        ),
        ends(0, a=[0, 0], b=[0]),
        ends(1_000, a=[2_000, 5], b=[50]),
    )


def column(table: Table, watch: Watch, title: str, choice: Choice | None = None) -> list[str]:
    shown = view(table, watch.known, choice)
    at = [one.title for one in shown.columns].index(title)
    return [row[at] for row in shown.cells()]


def test_brokers(watch: Watch) -> None:
    assert column(BROKERS, watch, "id") == ["0", "1", "2"]
    assert column(BROKERS, watch, "state") == ["live", "away", "live"]
    assert column(BROKERS, watch, "address") == ["localhost:9092", "-", "localhost:9094"]
    assert column(BROKERS, watch, "records/s") == ["2,000", "-", "55"]
    assert column(BROKERS, watch, "behind") == ["0", "1", "0"]
    watch.handle(EndsSeen(2_000, {}, {2: "refused"}))
    assert column(BROKERS, watch, "state") == ["live", "away", "silent"]


def test_columns_of_metrics_are_there_if_a_broker_tells_them(watch: Watch) -> None:
    assert "CPU" not in [one.title for one in view(BROKERS, watch.known).columns]
    watch.handle(
        MetricsSeen(
            0, {0: BrokerMetrics(cpu_s_total={("broker", "broker-0"): 1}, memory_bytes=2**20)}
        )
    )
    watch.handle(
        MetricsSeen(
            2_000, {0: BrokerMetrics(cpu_s_total={("broker", "broker-0"): 2}, memory_bytes=2**20)}
        )
    )
    assert column(BROKERS, watch, "CPU") == ["50%", "-", "-"]
    assert column(BROKERS, watch, "memory") == ["1.0 MiB", "-", "-"]


def test_the_fullest_disk_of_a_broker_counts(watch: Watch) -> None:
    watch.handle(DisksSeen([LogDir(0, "/a", 100, 50, []), LogDir(0, "/b", 100, 20, [])]))
    assert column(BROKERS, watch, "disk free") == ["20%", "-", "-"]
    watch.handle(DisksSeen([LogDir(0, "/a", 100, 50, []), LogDir(2, "/b", 100, -1, [])]))
    assert column(BROKERS, watch, "disk free") == ["50%", "-", "-"], "-1 is unknown"
    watch.handle(DisksSeen([LogDir(0, "/a", 100, 50, []), LogDir(0, "/b", 100, 20, [])]))
    assert details(BROKERS, watch.known, "0")[-2:] == [
        "/a: 50 B of 100 B free",
        "/b: 20 B of 100 B free",
    ]


def test_topics_the_busiest_first_and_those_without_a_rate_last(watch: Watch) -> None:
    assert column(TOPICS, watch, "topic") == ["a", "b", "c"]
    assert column(TOPICS, watch, "records/s") == ["2,005", "50", "-"]
    assert column(TOPICS, watch, "offline") == ["0", "0", "1"]
    assert column(TOPICS, watch, "behind") == ["1", "0", "0"]


@pytest.mark.parametrize(
    ("choice", "topics"),
    [
        (Choice("topic"), ["a", "b", "c"]),
        (Choice("topic", is_reversed=True), ["c", "b", "a"]),
        (Choice("offline"), ["c", "a", "b"]),
        (Choice("records_per_s", is_reversed=True), ["b", "a", "c"]),
        (Choice(text="B"), ["b"]),
        (Choice(text="nothing"), []),
        (Choice(most=1), ["a"]),
    ],
)
def test_order_filter_and_cut(watch: Watch, choice: Choice, topics: list[str]) -> None:
    assert column(TOPICS, watch, "topic", choice) == topics


def test_how_many_rows_there_are_is_known_whatever_is_shown(watch: Watch) -> None:
    shown = view(PARTITIONS, watch.known, Choice(text="a-", most=1))
    assert (len(shown.rows), shown.matching, shown.total) == (1, 2, 4)


def test_partitions(watch: Watch) -> None:
    assert column(PARTITIONS, watch, "partition") == ["a-0", "b-0", "a-1", "c-0"]
    assert column(PARTITIONS, watch, "leader") == ["0", "2", "2", "-"]
    assert column(PARTITIONS, watch, "in sync") == ["0,1,2", "0,1,2", "0,2", "1"]


def test_groups_and_one_in_full(watch: Watch) -> None:
    watch.handle(GroupsSeen(0, [GroupListing(n, "classic", "", "Empty", 0) for n in "gh"]))
    a0, gone = TopicPartition("a", 0), TopicPartition("gone", 0)
    for at_s, end in ((0, 2_000), (10, 2_100)):
        watch.handle(ends(at_s * 1_000, a=[end]))
        watch.handle(CommitsSeen(at_s * 1_000, {"h": {a0: 2_000 - at_s, gone: 1}}))
        watch.handle(CommitsSeen(at_s * 1_000, {"h": {a0: 1_500, gone: 1}}))
    assert column(GROUPS, watch, "group") == ["h", "g"]
    assert column(GROUPS, watch, "lag") == ["600", "-"]
    assert details(GROUPS, watch.known, "h")[-2:] == [
        "a-0: lag 600, committed 1,500, end 2,100",
        "gone-0: committed 1, end not known",
    ]


def test_transactions_the_oldest_first(watch: Watch) -> None:
    transactions = [
        TransactionDescription(name, 0, "Ongoing", 1, 0, 60_000, start, [TopicPartition("a", 1)])
        for name, start in (("young", 95_000), ("old", 10_000), ("over", -1))
    ]
    watch.handle(TransactionsSeen(100_000, 3, transactions))
    assert column(TRANSACTIONS, watch, "transactional id") == ["old", "young", "over"]
    assert column(TRANSACTIONS, watch, "open for") == ["1 min 30 s", "5 s", "-"]
    assert details(TRANSACTIONS, watch.known, "old")[-1] == "a-1"


def test_rows_in_full(watch: Watch) -> None:
    assert details(TOPICS, watch.known, "c")[-1] == (
        "c-0: leader none, in sync 1 of 1, end -, - records/s"
    )
    assert "leader: 2" in details(PARTITIONS, watch.known, "b-0")
    for table in TABLES:
        assert details(table, watch.known, "nobody") == ["nobody is gone"]


def test_a_topic_with_thousands_of_partitions_is_cut() -> None:
    many = [("t", partition(i)) for i in range(3_000)]
    lines = details(TOPICS, watching(cluster(*many)).known, "t")
    assert lines[-1] == "and 2,800 more"


def test_every_table_of_an_empty_cluster_is_empty() -> None:
    assert [view(table, Watch().known).cells() for table in TABLES] == [[]] * len(TABLES)
