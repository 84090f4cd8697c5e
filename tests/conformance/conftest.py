"""Brokers that the conformance tests talk to."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

pytest.register_assert_rewrite("tests.conformance.suite", "tests.conformance.clients.base")

EXTERNAL = os.environ.get("RAYLOG_CONFORMANCE_BOOTSTRAP", "")
"""Addresses of any broker, such as an Apache Kafka; without it Raylog is started embedded."""

LARGEST = "external" if EXTERNAL else "raylog-3"
"""The one cluster for tests whose clients take seconds to start."""

RAYLOG = [pytest.param("raylog-1", marks=pytest.mark.long), "raylog-3"]
OF_KAFKA = [pytest.mark.java, pytest.mark.long]
"""Marks of the tests that ask an Apache Kafka the same."""


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster under test. `brokers` is 0 where the number is not known."""

    bootstrap: str
    brokers: int


def _start_embedded(brokers: int, running: ExitStack) -> Target:
    from raylog.testing import EmbeddedBroker

    quiet = {"auto.leader.rebalance.enable": "false"}  # tests elect leaders themselves
    broker = running.enter_context(EmbeddedBroker(brokers=brokers, settings=quiet))
    return Target(broker.bootstrap, brokers)


@pytest.fixture(scope="session")
def targets() -> Iterator[Callable[[str], Target]]:
    """Clusters by name, each started once, whatever the order of the tests."""
    started: dict[str, Target] = {}
    with ExitStack() as running:

        def get(name: str) -> Target:
            if name not in started:
                if name == "external":
                    started[name] = Target(EXTERNAL, 0)
                else:
                    started[name] = _start_embedded(int(name.removeprefix("raylog-")), running)
            return started[name]

        yield get


@pytest.fixture(scope="session")
def own_clusters() -> Iterator[Callable[[str], str]]:
    """Bootstrap servers of clusters whose settings tests may change: "raylog" and "kafka".

    Each is started once, the first time that it is asked for.
    """
    if EXTERNAL:
        pytest.skip("an external cluster's settings are left as they are")
    from bench.peers import ApacheKafka
    from raylog.testing import EmbeddedBroker
    from tests.conformance.tools import java_tools

    started: dict[str, str] = {}
    with ExitStack() as running:

        def get(kind: str) -> str:
            if kind not in started and kind == "kafka":
                java_tools()
                started[kind] = running.enter_context(ApacheKafka().run()).address
            elif kind not in started:
                started[kind] = running.enter_context(EmbeddedBroker(brokers=2)).bootstrap
            return started[kind]

        yield get


@pytest.fixture(params=["external"] if EXTERNAL else RAYLOG)
def target(request: pytest.FixtureRequest, targets: Callable[[str], Target]) -> Target:
    """The cluster under test: an external one, or Raylog with one broker and with three."""
    return targets(request.param)


@pytest.fixture(
    params=["external"] if EXTERNAL else [*RAYLOG, pytest.param("kafka", marks=OF_KAFKA)]
)
def either(request: pytest.FixtureRequest, targets: Callable[[str], Target]) -> Target:
    """As `target`, and Apache Kafka too: for tests of our own client."""
    if request.param != "kafka":
        return targets(request.param)
    own_clusters: Callable[[str], str] = request.getfixturevalue("own_clusters")
    return Target(own_clusters("kafka"), 1)


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A topic name no other test or run uses."""
    return f"conformance-{os.getpid()}-{os.urandom(3).hex()}-{next(_numbers)}"
