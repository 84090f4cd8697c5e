"""A Spark session on the Ray cluster that runs the brokers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from raylog.raydp_jobs.session import NoCluster, spark_session
from tests.spark.conftest import ROOT
from tests.spark.reading import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAYLOG = [sys.executable, "-m", "raylog.cli"]
pytestmark = pytest.mark.ray


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found


@pytest.fixture
def cluster(tmp_path: Path, port: int) -> Iterator[Path]:
    """The folder of a cluster that is up."""
    data = tmp_path / "data"
    up = [*RAYLOG, "up", "--data", str(data), "--port", str(port), "--detach"]
    subprocess.run(up, check=True, capture_output=True)
    yield data
    subprocess.run([*RAYLOG, "down", "--data", str(data)], check=True, capture_output=True)


def test_executors_read_and_write_beside_the_brokers(cluster: Path, port: int) -> None:
    """And leave nothing behind but the brokers' actors; the program's signals stay its own."""
    bootstrap = f"127.0.0.1:{port}"
    script = [sys.executable, "-m", "tests.spark.session_script", str(cluster), bootstrap]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "read": 100,
        "executors": 1,
        "new": True,
        "same_signals": True,
        "master": "ray",
        "left": [],
    }
    assert values(bootstrap, "out") == sorted(b"%d" % n for n in range(100))


def test_without_a_cluster_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match="raylog up --data"), spark_session(tmp_path):
        raise AssertionError("there is no session")


def test_an_executor_in_the_drivers_process_is_not_taken_for_lost(spark: SparkSession) -> None:
    """Spark would, once the machine has slept for two minutes, and end ten minutes later."""
    configs = dict(spark.sparkContext.getConf().getAll())
    assert configs["spark.storage.blockManagerHeartbeatTimeoutMs"] == "365d"
