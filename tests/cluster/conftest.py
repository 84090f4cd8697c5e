"""Actors on a local Ray, which is started once for all tests in this folder."""

from __future__ import annotations

import secrets
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raylog.actors.runtime import ray_node
from tests.support.ray_clusters import NewCluster, NewNode, Note, RayCluster

if TYPE_CHECKING:
    from raylog.actors.runtime.ray import RayRuntime


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "local_ray" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ray)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    noted = [report for report in reports if report.user_properties]
    if noted:
        terminalreporter.section("figures")
    for report in noted:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in report.user_properties)
        terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {figures}")


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Notes a figure for the end of the report."""
    return lambda name, value: request.node.user_properties.append((name, value))


@pytest.fixture(scope="session")
def local_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Ray node of our own; the path is that of the links' secret."""
    run = tmp_path_factory.mktemp("ray")
    node = ray_node.start_node(run)
    try:
        ray_node.connect(node.address, node.token_path)
        secret = run / "link.secret"
        secret.write_bytes(secrets.token_bytes(32))
        yield secret
    finally:
        ray_node.disconnect()
        left = ray_node.stop_nodes(run)
    assert not left


@pytest.fixture
def cluster_id() -> str:
    """A cluster id of the test's own: actors of different tests never meet."""
    return uuid.uuid4().hex[:22]


@pytest.fixture
def driver(local_ray: Path) -> Callable[[], RayRuntime]:
    """Makes the runtime of a driver; Ray must not be imported before its environment is set."""
    from raylog.actors.runtime.ray import RayRuntime

    return lambda: RayRuntime.of_driver(str(local_ray))


@pytest.fixture
def new_cluster(driver: Callable[[], RayRuntime], tmp_path: Path) -> Iterator[NewCluster]:
    """Makes clusters on this test's data; whatever is left of them at the end is ended."""
    made: list[RayCluster] = []

    def new(data: str = "data", **options: Any) -> RayCluster:
        made.append(RayCluster(driver(), tmp_path / data, **options))
        return made[-1]

    yield new
    for cluster in made:
        cluster.end()


@pytest.fixture
def new_node(local_ray: Path, tmp_path: Path) -> Iterator[NewNode]:
    """Starts more nodes of the Ray of this session; they end with the test."""
    (head,) = ray_node.running_nodes(local_ray.parent)
    run = tmp_path / "nodes"
    run.mkdir(mode=0o700)
    shutil.copy(head.token_path, run / "ray.token")
    yield lambda index, labels=None: ray_node.start_node(
        run, index=index, join=head.address, labels=labels
    )
    assert not ray_node.stop_nodes(run)
