"""The benchmark's programme, and the sizes of runs."""

from bench.__main__ import chosen, parse_source
from bench.clients import ProducerSettings
from bench.peers import ApacheKafka, Raylog, Reachable
from bench.workloads import (
    TOPIC_BYTES_MAX,
    EndToEnd,
    Paced,
    Produce,
    all_workloads,
    quick_workloads,
)


def test_names_are_unique_and_quick_is_a_part_of_all() -> None:
    names = [workload.name for workload in all_workloads(groups=True)]
    assert len(set(names)) == len(names)
    assert {workload.name for workload in quick_workloads()} <= set(names)


def test_groups_only_where_both_have_them() -> None:
    without = {workload.name for workload in all_workloads(groups=False)}
    with_groups = {workload.name for workload in all_workloads(groups=True)}
    assert without < with_groups
    assert all("java-group" in name for name in with_groups - without)


def test_the_programme_covers_what_it_promises() -> None:
    names = [workload.name for workload in all_workloads(groups=False)]
    for part in (
        "acks=1",
        "acks=all",
        "100 B",
        "1024 B",
        "1 p",
        "6 p",
        "16 KiB linger 0",
        "x3",
        "lz4",
        "zstd",
    ):
        assert any(name.startswith("produce java") and part in name for name in names)
    assert chosen(all_workloads(groups=False), ["consume*librdkafka"])
    assert len(chosen(all_workloads(groups=False), [])) == len(names)


def test_a_codec_is_a_setting_of_the_java_producer() -> None:
    assert "compression.type=none" in ProducerSettings("1", 5, 1).java
    settings = ProducerSettings("1", 5, 65_536, codec="lz4")
    assert "compression.type=lz4" in settings.java
    assert Produce("java", settings, 100, 1).name == (
        "produce java acks=1 100 B 1 p 64 KiB linger 5 lz4"
    )


def test_runs_are_sized_by_rate_and_bounded() -> None:
    workload = Produce("java", ProducerSettings("1", 5, 1), 1000, 1)
    assert workload.sized(100_000, 5).records == 500_000
    assert workload.sized(1, 5).records == workload.records
    assert workload.sized(1e9, 5).records == TOPIC_BYTES_MAX // 1000
    assert EndToEnd("1").sized(0, 10).records == 5_000
    assert Paced("1", 1000, 100).sized(0, 7).seconds == 7


def test_sources_are_named_or_addressed() -> None:
    assert isinstance(parse_source("kafka", []), ApacheKafka)
    assert parse_source("raylog", ["a.b=c=d"]) == Raylog({"a.b": "c=d"})
    assert parse_source("mine=127.0.0.1:9092", []) == Reachable("mine", "127.0.0.1:9092")
