"""How `raylog top` processes what it learns."""

import pytest

from raylog.cli.counters import Process
from raylog.cli.top import events
from raylog.cli.top.events import (
    BrokerMetrics,
    BrokerSeen,
    ClusterSeen,
    CommitsSeen,
    GroupsSeen,
    MetricsSeen,
    PartFailed,
)
from raylog.cli.top.lag import LagTrend
from raylog.cli.top.machine import BrokerRates, names, totals
from raylog.client import TopicPartition
from raylog.client.admin.groups import GroupListing
from tests.support.top_clusters import cluster, ends, partition, watching

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def listing(name: str, state: str = "Stable") -> GroupListing:
    return GroupListing(name, "classic", "consumer", state, 0)


def test_rates_come_from_two_looks() -> None:
    watch = watching(
        cluster(("t", partition(0, leader=0)), ("t", partition(1, leader=2))),
        ends(1_000, t=[100, 10]),
    )
    assert watch.known.rates == {}
    watch.handle(ends(3_000, t=[150, 10]))
    assert watch.known.rates == {T0: 25.0, T1: 0.0}
    assert totals(watch.known) == ({"t": 25.0}, {0: 25.0, 2: 0.0})


def test_a_topic_that_was_made_anew_has_no_rate() -> None:
    watch = watching(cluster(("t", partition(0))), ends(0, t=[100]), ends(1_000, t=[7]))
    assert watch.known.rates == {}
    watch.handle(ends(2_000, t=[9]))
    assert watch.known.rates == {T0: 2.0}


def test_two_looks_at_the_same_time_have_no_rate() -> None:
    assert watching(ends(5, t=[1]), ends(5, t=[2])).known.rates == {}


def test_brokers_that_hold_replicas_or_are_fenced_are_away_since_they_were_missed() -> None:
    watch = watching(cluster(("t", partition(0)), at_ms=1))
    assert watch.known.away_since_ms == {}
    watch.handle(cluster(("t", partition(0)), live=(0, 2), at_ms=5))
    fenced = {7: BrokerSeen(7, "h", 1, is_fenced=True)}
    away = cluster(("t", partition(0)), live=(0, 2), at_ms=9)
    watch.handle(
        ClusterSeen(away.at_ms, away.cluster_id, {**away.brokers, **fenced}, away.partitions)
    )
    assert watch.known.away_since_ms == {1: 5, 7: 9}
    watch.handle(cluster(("t", partition(0)), at_ms=11))
    assert watch.known.away_since_ms == {}


def test_a_part_that_fails_keeps_what_it_reported_and_when_it_failed_first() -> None:
    watch = watching(
        cluster(("t", partition(0))),
        PartFailed(10, events.CLUSTER, "first"),
        PartFailed(20, events.CLUSTER, "second"),
    )
    assert watch.known.failing[events.CLUSTER] == PartFailed(10, events.CLUSTER, "second")
    assert list(watch.known.partitions) == [T0]
    watch.handle(cluster(("t", partition(0)), at_ms=30))
    assert watch.known.failing == {}


def test_lag_of_a_group_whose_partitions_are_known() -> None:
    watch = watching(
        cluster(("t", partition(0)), ("t", partition(1))),
        ends(0, t=[100, 50]),
        GroupsSeen(0, [listing("g"), listing("other")]),
        CommitsSeen(0, {"g": {T0: 90, T1: 50}, "other": {TopicPartition("gone", 0): 5}}),
    )
    assert watch.known.lags["g"].lag == 10
    assert "other" not in watch.known.lags
    watch.handle(GroupsSeen(1, [listing("other")]))
    assert (watch.known.lags, list(watch.known.committed)) == ({}, ["other"])


def test_a_group_that_swaps_a_partition_for_another_has_no_rates_at_first() -> None:
    watch = watching(
        cluster(("t", partition(0)), ("t", partition(1))),
        ends(0, t=[100, 500]),
        CommitsSeen(0, {"g": {T0: 90}}),
        ends(1_000, t=[100, 500]),
        CommitsSeen(1_000, {"g": {T1: 490}}),
    )
    assert watch.known.lags["g"] == LagTrend(10)


def test_committed_offsets_fail_until_they_are_known_though_groups_are_listed() -> None:
    watch = watching(PartFailed(10, events.COMMITS, "lost"), GroupsSeen(20, [listing("g")]))
    watch.handle(PartFailed(30, events.COMMITS, "late"))
    assert watch.known.failing == {events.COMMITS: PartFailed(10, events.COMMITS, "late")}
    watch.handle(CommitsSeen(40, {}))
    assert watch.known.failing == {}


def test_addresses_of_metrics_fail_until_all_answer() -> None:
    watch = watching(
        MetricsSeen(10, {0: BrokerMetrics(p99_ms=3)}, ["a:1/metrics: lost"]),
        MetricsSeen(20, {0: BrokerMetrics(p99_ms=4)}, ["a:1/metrics: late", "b:1/metrics: lost"]),
    )
    why = "a:1/metrics: late; b:1/metrics: lost"
    assert watch.known.failing == {events.METRICS: PartFailed(10, events.METRICS, why)}
    assert watch.known.metrics == {0: BrokerRates(p99_ms=4)}
    watch.handle(MetricsSeen(30, {}))
    assert watch.known.failing == {}


def test_rebalance_start_of_a_group_is_tracked() -> None:
    rebalancing = [listing("g", "PreparingRebalance"), listing("h"), listing("i", "")]
    watch = watching(GroupsSeen(1, rebalancing), GroupsSeen(2, rebalancing))
    assert watch.known.rebalancing_since_ms == {"g": 1}
    watch.handle(GroupsSeen(3, [listing("g")]))
    assert watch.known.rebalancing_since_ms == {}


A, B = ("gateway", "gateway-0"), ("gateway", "gateway-1")


def test_rates_of_counters_and_a_broker_that_restarted() -> None:
    watch = watching(
        MetricsSeen(0, {0: BrokerMetrics({A: 100}, cpu_s_total={A: 5}, p99_ms=3)}),
        MetricsSeen(2_000, {0: BrokerMetrics({A: 300}, cpu_s_total={A: 1}, p99_ms=4)}),
    )
    assert watch.known.metrics == {0: BrokerRates(bytes_in_per_s=100, p99_ms=4)}


def test_a_process_that_misses_a_scrape_has_done_nothing_in_one_moment() -> None:
    watch, rates = watching(), []
    totals: list[dict[Process, float]] = [
        {A: 5e12, B: 100},
        {B: 300},
        {A: 5e12, B: 500},
        {A: 5e12, B: 700},
    ]
    for n, total in enumerate(totals):
        watch.handle(MetricsSeen(n * 2_000, {0: BrokerMetrics(total)}))
        rates.append(watch.known.metrics[0].bytes_in_per_s)
    assert rates == [None, 100, 100, 100]


def test_a_few_names_internal_topics_last() -> None:
    keys = [TopicPartition("__consumer_offsets", 3), T1, T0]
    assert names(keys, 3) == "t-0, t-1, __consumer_offsets-3"
    assert names(keys, 1) == "t-0 and 2 more"


def test_an_event_that_is_none_is_refused() -> None:
    with pytest.raises(AssertionError):
        watching(object())
