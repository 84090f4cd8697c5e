"""Clusters, of Raylog and of Apache Kafka, in both versions of transactions, and one Spark session.

`RAYLOG_SPARK_PEERS=1` (make spark-peers) runs all that is about transactions on Apache Kafka too.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.peers import ApacheKafka
from raylog.client import BlockingClient, NewTopic
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.client.transactions import FEATURE
from raylog.raydp_jobs.java import JavaMissing, find_java
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.spark.driving import Driver, driving
from tests.support.ray_clusters import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PEERS = bool(os.environ.get("RAYLOG_SPARK_PEERS"))
VERSIONS = [("raylog", 2), ("raylog", 1), *([("kafka", 2), ("kafka", 1)] if PEERS else [])]
PYSPARKS_OWN = ("distutils Version classes are deprecated", "unclosed", "Exception ignored in")
"""Warnings that pyspark and py4j cause, which leave sockets to the garbage collector."""
_UPGRADE, _DOWNGRADE = 1, 2
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM and an Apache Kafka start within the first test's time."""
    for item in items:
        item.add_marker(pytest.mark.timeout(600))
        for warning in PYSPARKS_OWN:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}"))


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], str]]:
    """Clusters by kind, each started once."""
    found: dict[str, str] = {}
    with ExitStack() as running:

        def get(kind: str) -> str:
            if kind not in found and kind == "kafka":
                found[kind] = running.enter_context(ApacheKafka().run()).address
            elif kind not in found:
                found[kind] = running.enter_context(EmbeddedBroker(brokers=2)).bootstrap
            return found[kind]

        yield get


@pytest.fixture(params=VERSIONS, ids=lambda param: f"{param[0]}-{param[1]}")
def bootstrap(request: pytest.FixtureRequest, started: Callable[[str], str]) -> str:
    """A cluster with transactions of one version or the other."""
    kind, version = request.param
    address = started(kind)
    set_level(address, version)
    return address


@pytest.fixture
def raylog(started: Callable[[str], str]) -> str:
    """Raylog as it is by default."""
    address = started("raylog")
    set_level(address, 2)
    return address


def level(bootstrap: str) -> int:
    """The version of transactions that a client finds when it connects."""
    io = BlockingIo()
    core = Core(io, ClientSettings(parse_bootstrap(bootstrap)))
    run_blocking(core.refresh([]))
    found = core.feature_level(FEATURE)
    core.close()
    io.close()
    return found


def set_level(bootstrap: str, wanted: int) -> None:
    """Change it, and wait until clients find it."""
    found = level(bootstrap)
    if found == wanted:
        return
    kind = _UPGRADE if wanted > found else _DOWNGRADE
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=wanted, upgrade_type=kind)
    io = BlockingIo()
    core = Core(io, ClientSettings(parse_bootstrap(bootstrap)))
    request = UpdateFeaturesRequest(feature_updates=[update])
    answer = run_blocking(core.ask_controller(request, UpdateFeaturesResponse))
    core.close()
    io.close()
    assert answer.error_code == ErrorCode.NONE, answer
    wait_until(lambda: level(bootstrap) == wanted, f"{FEATURE} at {wanted}")


@pytest.fixture
def name() -> str:
    """A name no other test or run uses."""
    return f"spark-{os.getpid()}-{os.urandom(3).hex()}-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """A topic of three partitions."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, 3)])
    return name


@pytest.fixture
def driver(bootstrap: str, topic: str) -> Iterator[Driver]:
    """The driver of a sink that writes to the topic."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(f"{topic}-in", 1)])
    with driving(bootstrap, topic) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process's JVM: two tasks at a time, each tried up to four times."""
    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    from raylog.raydp_jobs.session import local_session

    os.environ["PYTHONPATH"] = str(ROOT)
    folder = tmp_path_factory.mktemp("spark")
    configs = {
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    with local_session("tests", "local[2,4]", configs=configs) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session
