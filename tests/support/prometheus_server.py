"""A Prometheus that scrapes brokers every second, for a test."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.support.prometheus import prometheus

RULES = Path(__file__).parents[2] / "deploy/prometheus/alerts.yaml"
STARTS_IN_S = 30


class PrometheusServer:
    """A client of its HTTP API."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an API response; fail if it is an error."""
        url = f"http://{self.address}/api/v1/{path}?{urlencode(query)}"
        with urlopen(url, timeout=10) as answer:  # http
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression."""
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result

    def has(self, expression: str) -> bool:
        """Return whether an expression has any series now."""
        return bool(self.query(expression))


@contextmanager
def scraping(targets: Sequence[str], directory: Path) -> Iterator[PrometheusServer]:
    """Run a Prometheus with the project's alerts until the block ends."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "raylog", "static_configs": [{"targets": [*targets]}]}],
    }
    file = directory / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        prometheus(),
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(process, address)
        yield PrometheusServer(address)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    ends = time.monotonic() + STARTS_IN_S
    while time.monotonic() < ends:
        assert process.poll() is None, "Prometheus has ended: see prometheus.log"
        try:
            with urlopen(f"http://{address}/-/ready", timeout=1):  # http
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"Prometheus is not ready after {STARTS_IN_S} s")
