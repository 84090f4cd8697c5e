"""Prometheus scrapes brokers under load, and runs every query of the dashboards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from raylog.client import BlockingClient, NewTopic
from raylog.client.admin.topics import Resource, ResourceType
from raylog.testing import EmbeddedBroker
from tests.support.dashboards import DASHBOARDS, filled_in, panels_of
from tests.support.prometheus import prometheus
from tests.support.prometheus_server import PrometheusServer, scraping
from tests.support.ray_clusters import wait_until

INTERVAL = "10s"
TOPIC = "orders"
EMPTY = (
    "raylog_errors_total",
    "raylog_scrape_failures_total",
    "raylog_cleaner_runs_total",
    "raylog_log_flush_seconds",
    "raylog_isr_changes_total",
    "label_values",
)
"""Queries that read these need not have data while all is well."""


@contextmanager
def working(bootstrap: str) -> Iterator[None]:
    """Clients that write, read, commit offsets and transactions until the block ends."""
    stopped = threading.Event()
    failures: list[BaseException] = []

    def each(step: Callable[[], object]) -> None:
        try:
            while not stopped.is_set():
                step()
        except BaseException as failure:  # noqa: BLE001 - raised below
            failures.append(failure)

    own = {"bootstrap.servers": bootstrap}
    producer = Producer({**own, "client.id": "writer", "transactional.id": "writer"})
    producer.init_transactions()
    consumer = Consumer({**own, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])

    def write() -> None:
        producer.begin_transaction()
        for number in range(50):
            producer.produce(TOPIC, b"x" * 100, key=b"%d" % number)
        producer.flush()
        stopped.wait(0.2)
        producer.commit_transaction()

    def read() -> None:
        if consumer.consume(20, timeout=0.2):
            consumer.commit(asynchronous=False)

    threads = [threading.Thread(target=each, args=(one,)) for one in (write, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
        consumer.close()
    assert not failures


pytestmark = pytest.mark.long  # starts a cluster and a Prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """Three brokers at work, scraped for a while."""
    prometheus()
    settings = {"health.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(brokers=3, settings=settings) as brokers:
        with BlockingClient(brokers.bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, 6, replication_factor=3)])
            pushed = Resource(ResourceType.CLIENT_METRICS, "all")
            client.alter_configs(pushed, {"metrics": "*", "interval.ms": "1000"})
        targets = [status.http for status in brokers.statuses]
        directory = tmp_path_factory.mktemp("prometheus")
        with scraping(targets, directory) as server, working(brokers.bootstrap):
            wait_until(lambda: is_settled(server), "series of everything", timeout_s=90)
            yield server


def is_settled(server: PrometheusServer) -> bool:
    """Whether everything has been seen several times."""
    return all(
        server.has(expression)
        for expression in (
            "count(count_over_time(raylog_broker_info[10s]) > 7) == 3",
            "sum(raylog_group_lag_records) >= 0",
            "sum(increase(raylog_transactions_ended_total[10s])) > 0",
            "sum(increase(raylog_client_pushes_total[10s])) > 0",
        )
    )


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Titles and queries of all panels."""
    for panel in panels_of(dashboard):
        for target in panel.get("targets", ()):
            yield panel["title"], filled_in(dashboard, target["expr"], INTERVAL)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_has_data(name: str, watched: PrometheusServer) -> None:
    empty = [
        f"{title}: {query}"
        for title, query in queries(DASHBOARDS[name])
        if not watched.has(query) and not any(family in query for family in EMPTY)
    ]
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_have_values_and_annotations_can_be_asked(
    name: str, watched: PrometheusServer
) -> None:
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query":
            family, label = variable["query"]["query"][len("label_values(") : -1].split(", ")
            values = watched.ask(f"label/{label}/values", **{"match[]": family})
            assert values, (variable["name"], family)
    for annotation in DASHBOARDS[name]["annotations"]["list"]:
        watched.query(annotation["expr"])


def test_alerts_are_quiet_while_all_is_well(watched: PrometheusServer) -> None:
    (group,) = watched.ask("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    states = {rule["name"]: rule["state"] for rule in group["rules"]}
    assert {name for name, state in states.items() if state == "firing"} == set()


def test_metrics_of_all_brokers_are_consistent(watched: PrometheusServer) -> None:
    """What is told by several processes is counted once."""
    for expression, value in (
        ("sum(raylog_active_controllers)", 1),
        ('max(raylog_brokers{state="active"})', 3),
        ('sum(raylog_partitions{state="leader"}) - on() max(raylog_cluster_partitions)', 0),
        ('count(raylog_group_lag_records{group="readers"})', 1),
        ('sum(raylog_groups{type="classic"})', 1),
    ):
        (series,) = watched.query(expression)
        assert float(series["value"][1]) == value, expression
