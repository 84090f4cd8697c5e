"""Brokers' own metrics: scraped, and turned into values over time."""

from __future__ import annotations

import http.server
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raylog.cli.metrics_listeners import find_metrics_listeners
from raylog.client import ClientSettings, parse_bootstrap
from raylog.loadtest import broker_metrics
from raylog.loadtest.broker_metrics import BrokerMetrics, read_scrape
from raylog.loadtest.embedded import embedded_broker

TEXT = """\
# TYPE raylog_process_cpu_seconds counter
raylog_process_cpu_seconds_total{{broker="0",role="replica",process="a"}} {cpu}
raylog_process_cpu_seconds_total{{broker="0",role="gateway",process="b"}} 1.5
# TYPE raylog_process_resident_memory_bytes gauge
raylog_process_resident_memory_bytes{{broker="0",role="replica",process="a"}} 100
raylog_process_resident_memory_bytes{{broker="0",role="gateway",process="b"}} 50
# TYPE raylog_request_seconds histogram
raylog_request_seconds_bucket{{broker="0",process="a",api="Produce",le="0.001"}} {quick}
raylog_request_seconds_bucket{{broker="0",process="a",api="Produce",le="0.01"}} {all}
raylog_request_seconds_bucket{{broker="0",process="a",api="Produce",le="+Inf"}} {all}
raylog_request_seconds_bucket{{broker="0",process="a",api="Metadata",le="+Inf"}} 7
"""
NOBODY = ("127.0.0.1", 9)


def text(cpu: float, quick: int, total: int) -> str:
    return TEXT.format(cpu=cpu, quick=quick, all=total)


def test_values_are_added_up_over_processes_and_taken_between_scrapes() -> None:
    metrics = BrokerMetrics({4: NOBODY})
    metrics.take(4, read_scrape(text(2.0, 100, 100), 5.0))
    metrics.take(4, read_scrape(text(4.5, 150, 200), 10.0))
    found = {one.name: one for one in metrics.gauges()}
    assert found["memory"].points == [(5.0, 150.0), (10.0, 150.0)]
    assert found["CPU"].points == [(10.0, 0.5)]
    assert found["CPU"].labels == {"broker": "4"}
    assert found["request p99"].labels == {"broker": "4", "api": "Produce"}
    ((at_s, p99_ms),) = found["request p99"].points
    assert at_s == 10.0
    assert p99_ms == pytest.approx(9.82)
    assert "connections" not in found, "nobody told"


def test_a_process_that_was_replaced_has_used_nothing() -> None:
    metrics = BrokerMetrics({4: NOBODY})
    metrics.take(4, read_scrape(text(9.0, 0, 0), 5.0))
    metrics.take(4, read_scrape(text(0.5, 0, 0), 10.0))
    assert {one.name: one.points for one in metrics.gauges()}["CPU"] == [(10.0, 0.0)]


def test_a_process_that_misses_a_scrape_has_done_nothing_in_one_moment() -> None:
    metrics = BrokerMetrics({4: NOBODY})
    both = text(500.0, 4_000, 5_000)
    silent = "\n".join(line for line in both.splitlines() if 'process="a"' not in line)
    for at_s, answers in ((5.0, both), (10.0, silent), (15.0, both), (20.0, both)):
        metrics.take(4, read_scrape(f"{answers}\n", at_s))
    found = {one.name: one.points for one in metrics.gauges()}
    assert found["CPU"] == [(10.0, 0.0), (15.0, 0.0), (20.0, 0.0)]
    assert "request p99" not in found


def test_a_broker_without_an_answer_does_not_change_the_cpu_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each broker takes half a core. One of them hangs at the second of four looks."""
    now_s, hangs_s, hung = 0.0, 3.0, NOBODY

    def at(address: tuple[str, int]) -> str:
        nonlocal now_s
        if address == hung and began_s == 5.0:
            now_s += hangs_s
            raise TimeoutError
        return text(now_s / 2, 0, 0)

    monkeypatch.setattr(broker_metrics, "metrics_at", at)
    monkeypatch.setattr(broker_metrics, "time", types.SimpleNamespace(monotonic=lambda: now_s))
    metrics = BrokerMetrics({0: hung, 1: ("127.0.0.1", 10)})
    for began_s in (0.0, 5.0, 13.0, 18.0):
        now_s = began_s
        metrics.look(began_s)
    found = {one.labels["broker"]: one.points for one in metrics.gauges() if one.name == "CPU"}
    assert found == {
        "0": [(13.0, 0.5), (18.0, 0.5)],
        "1": [(8.0, 0.5), (13.0, 0.5), (18.0, 0.5)],
    }


def test_unparsable_metrics_leave_a_gap() -> None:
    with broker(b"raylog_connections{") as address:
        metrics = BrokerMetrics({0: address, 1: NOBODY})
        metrics.look(1.0)
    assert metrics.gauges() == []


def test_brokers_are_asked_over_http() -> None:
    with broker(text(1.0, 1, 1).encode()) as address:
        metrics = BrokerMetrics({0: address})
        metrics.look(1.0)
    assert [one.name for one in metrics.gauges()] == ["memory"]


def test_the_broker_of_a_run_without_a_cluster_has_metrics() -> None:
    with embedded_broker() as bootstrap:
        metrics = BrokerMetrics(find_metrics_listeners(ClientSettings(parse_bootstrap(bootstrap))))
        metrics.look(1.0)
    assert {"memory", "open files"} <= {one.name for one in metrics.gauges()}


@contextmanager
def broker(answer: bytes) -> Iterator[tuple[str, int]]:
    """Answers every request so."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield "127.0.0.1", server.server_port
        finally:
            server.shutdown()
            thread.join()
