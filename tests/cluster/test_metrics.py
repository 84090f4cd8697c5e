"""Metrics of brokers on Ray cover every process; a process that hangs delays none."""

from __future__ import annotations

import os
import signal

import pytest

from raylog.actors.names import GATEWAY, REPLICA
from raylog.client import BlockingClient, NewTopic
from tests.support.ray_clusters import NewCluster, wait_until
from tests.support.scraping import scrape

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
BROKERS = 3
RECORDS = 300
SETTINGS = {"health.listener": "127.0.0.1:0"}


@pytest.mark.long
def test_the_processes_of_three_brokers_are_reported(new_cluster: NewCluster) -> None:
    cluster = new_cluster(brokers=BROKERS, settings=SETTINGS)
    cluster.start()
    urls = [f"http://{cluster.status(one).http}/metrics" for one in cluster.broker_ids]
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic("t", 3, BROKERS)])
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number, partition=number % 3)
    found = scrape(*urls)
    assert found.total("raylog_topic_records_in_total", topic="t") == RECORDS
    size = found.total("raylog_topic_bytes_in_total", topic="t")
    assert size > RECORDS
    sent = wait_until(
        lambda: scrape(*urls).total("raylog_replication_bytes_total", direction="out") >= 2 * size,
        "all followers",
    )
    assert sent
    found = scrape(*urls)
    assert found.total("raylog_replication_bytes_total", direction="in", topic="t") == 2 * size
    assert found.total("raylog_log_size_bytes", topic="t") == BROKERS * size
    assert found.total("raylog_partitions", state="leader") == 3
    assert found.total("raylog_under_replicated_partitions") == 0

    pids = {cluster.pid(role, one) for role in (GATEWAY, REPLICA) for one in cluster.broker_ids}
    processes = {
        (one.labels["broker"], one.labels["process"])
        for one in found.matching("raylog_process_resident_memory_bytes")
    }
    assert len(processes) >= len(pids) + BROKERS, "those and the brokers themselves"


@pytest.mark.long
def test_a_process_that_hangs_is_left_out_until_it_goes_on(new_cluster: NewCluster) -> None:
    cluster = new_cluster(settings=SETTINGS)
    cluster.start()
    url = f"http://{cluster.status().http}/metrics"
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topics([NewTopic("t", 1, 1)])
    hung = cluster.pid(REPLICA)
    assert scrape(url).total("raylog_scrape_failures_total", role=REPLICA) == 0
    os.kill(hung, signal.SIGSTOP)
    try:
        found = scrape(url)
    finally:
        os.kill(hung, signal.SIGCONT)
    assert found.total("raylog_scrape_failures_total", role=REPLICA) == 1
    assert found.matching("raylog_broker_state", state="running")[0].value == 1
    assert wait_until(lambda: scrape(url).matching("raylog_log_segments"), "the process")
