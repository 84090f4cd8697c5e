"""What `raylog top` reads from brokers' metrics, with servers in this process."""

import asyncio
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.top.events import BrokerMetrics
from raylog.cli.top.scraping import Scraper, read
from raylog.testing import EmbeddedBroker
from raylog.wire.api import ApiKey
from raylog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.worlds.client.cluster import FakeCluster, core_of

TEXT = """\
# HELP raylog_network_bytes_total Bytes
# TYPE raylog_network_bytes_total counter
raylog_network_bytes_total{broker="0",role="gateway",process="a",direction="in"} %d
raylog_network_bytes_total{broker="0",role="gateway",process="b",direction="in"} 5
raylog_network_bytes_total{broker="0",role="gateway",process="a",direction="out"} 7
raylog_requests_total{broker="0",role="gateway",process="a",api="Produce"} 3
raylog_requests_total{broker="0",role="gateway",process="a",api="Fetch"} 4
raylog_request_seconds_bucket{broker="0",process="a",api="Produce",le="0.01"} %d
raylog_request_seconds_bucket{broker="0",process="a",api="Produce",le="+Inf"} %d
raylog_request_seconds_bucket{broker="0",process="a",api="Fetch",le="+Inf"} 99
raylog_request_seconds_sum{broker="0",process="a",api="Produce"} 1
raylog_process_cpu_seconds_total{broker="0",role="gateway",process="a"} 1.5
raylog_process_resident_memory_bytes{broker="0",role="gateway",process="a"} 1e6
raylog_process_resident_memory_bytes{broker="0",role="replica",process="b"} 2e6
raylog_something_else{broker="0"} 1
raylog_requests_total{api="Produce"} 1
"""


@contextlib.contextmanager
def serving(*answers: tuple[int, bytes]) -> Iterator[int]:
    """One answer after the other; the last one for ever."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scrape(port: int, times: int = 1) -> dict[int, BrokerMetrics]:
    async def run() -> dict[int, BrokerMetrics]:
        scraper, core = Scraper([("127.0.0.1", port)]), core_of(FakeCluster())
        for _ in range(times):
            found, failures = await scraper.scrape(core)
            assert failures == []
        return found

    return asyncio.run(run())


A = ("gateway", "a")


def test_metrics_of_the_processes_of_a_broker_are_summed() -> None:
    scraped = read(TEXT % (10, 3, 4))
    assert list(scraped) == [0]
    one = scraped[0]
    assert one.bytes_in == {A: 10, ("gateway", "b"): 5}
    assert (one.bytes_out, one.requests) == ({A: 7}, {A: 7})
    assert (one.cpu_s, one.memory) == ({A: 1.5}, 3e6)
    latency = {0.01: 3, float("inf"): 4}
    assert one.latency == {("", "a"): latency}, "fetches wait, and are left out"


def test_nothing_of_a_broker_is_nothing() -> None:
    assert read("") == {}
    assert read("go_goroutines 7\n<html>") == {}
    with pytest.raises(ValueError, match=r".*"):
        read('raylog_requests_total{broker="0" 7')


def test_percentiles_are_of_what_came_since_the_scrape_before() -> None:
    first, second = (TEXT % (10, 0, 100)).encode(), (TEXT % (20, 100, 200)).encode()
    with serving((200, first), (200, second)) as port:
        assert scrape(port)[0].p99_ms is None
    with serving((200, first), (200, second)) as port:
        found = scrape(port, times=2)[0]
    assert found.bytes_in_total == {A: 20, ("gateway", "b"): 5}
    assert found.p99_ms == pytest.approx(9.9)
    assert found.loop_lag_ms is None


@pytest.mark.parametrize("answer", [(404, b""), (200, b'raylog_requests_total{broker="0" 7')])
def test_a_named_address_that_fails_is_reported_and_the_others_are_read(
    answer: tuple[int, bytes],
) -> None:
    with serving(answer) as failing, serving((200, (TEXT % (1, 1, 1)).encode())) as port:
        scraper = Scraper([("127.0.0.1", failing), ("127.0.0.1", port)])
        found, failures = asyncio.run(scraper.scrape(core_of(FakeCluster())))
    assert list(found) == [0]
    (why,) = failures
    assert why.startswith(f"127.0.0.1:{failing}/metrics: ")


def test_metrics_beside_a_cluster() -> None:
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["top", *arguments], env={"COLUMNS": "250"})
        return result.exit_code, result.output

    first, second = (TEXT % (0, 0, 0)).encode(), (TEXT % (4_096, 1, 1)).encode()
    with EmbeddedBroker() as broker, serving((200, first), (200, second)) as port:
        metrics = ("--metrics", f"127.0.0.1:{port}", "-b", broker.bootstrap)
        code, output = run("--json", *metrics)
        (row,) = json.loads(output)["brokers"]
        assert code == 0
        assert row["bytes_in_per_s"] > 0
        assert row["memory_bytes"] == 3e6
        assert "CPU" in run("--once", *metrics)[1]
        with serving((404, b"")) as other:
            output = run("--once", *metrics, "--metrics", f"127.0.0.1:{other}")[1]
        assert f"metrics not known: 127.0.0.1:{other}/metrics: expected status 200" in output
        assert "CPU" in output
    code, output = run("--once", "--metrics", "nowhere")
    assert code == 2
    assert "expected HOST:PORT, found 'nowhere'" in output


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("ynnny", [[0], [], [], [], [0]]),
        ("nny", [[], [], [0], [0]]),
        ("nnny", [[], [], [], [], []]),
    ],
)
def test_an_address_that_a_broker_tells_is_given_up_if_it_never_answers_here(
    answers: str, expected: list[list[int]]
) -> None:
    def described(_: int, request: object) -> DescribeConfigsResponse:
        entry = DescribeConfigsResourceResult(name="health.listener", value=f"127.0.0.1:{port}")
        assert isinstance(request, DescribeConfigsRequest)
        (asked,) = request.resources
        result = DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[entry]
        )
        return DescribeConfigsResponse(results=[result])

    async def run() -> list[dict[int, BrokerMetrics]]:
        scraper, core = Scraper([]), core_of(fake)
        await core.refresh([])
        return [(await scraper.scrape(core))[0] for _ in expected]

    each = {"y": (200, (TEXT % (1, 1, 1)).encode()), "n": (404, b"")}
    with serving(*(each[one] for one in answers)) as port:
        fake = FakeCluster(handlers={ApiKey.DESCRIBE_CONFIGS: described})
        assert [list(one) for one in asyncio.run(run())] == expected
