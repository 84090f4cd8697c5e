"""Commands on an existing Ray: what they act on, and what fails."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import AuthenticationError, TaskUnschedulableError

from raylog.actors.places import NodeEntry
from raylog.actors.runtime import ray_node
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.actors.supervisor.survey import NodeFacts
from raylog.cli import ray_cluster
from raylog.cli.failures import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from raylog.cli.holding import meant
from raylog.cli.ray_cluster import cluster_to_change, on_ray, surveyed, the_cluster
from tests.worlds.broker.supervised import labelled


def test_commands_that_change_a_cluster_name_it_and_its_ray(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desired = DesiredCluster("c", (labelled(0),), ((0, "d"),))
    monkeypatch.setattr(ray_cluster, "desired_clusters", lambda: [desired])
    monkeypatch.setattr(ray_node, "joined_address", lambda: "10.0.0.1:6379")
    assert the_cluster("auto") == desired
    assert capsys.readouterr().err == ""
    assert cluster_to_change("auto") == desired
    captured = capsys.readouterr()
    assert captured.err == "Raylog cluster c, Ray cluster 10.0.0.1:6379\n"
    assert captured.out == ""


def test_several_clusters_are_listed_with_their_directories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = DesiredCluster("a", (labelled(0),), ())
    other = labelled(0)._replace(directory="/data/two/broker-0")
    second = DesiredCluster("b", (other,), ())
    monkeypatch.setattr(ray_cluster, "desired_clusters", lambda: [first, second])
    folder = Path(first.brokers[0].directory).parent
    assert the_cluster("auto", folder) == first
    assert the_cluster("auto", Path("/data/two")) == second
    with pytest.raises(CommandFailed, match=f"a on {folder}, b on /data/two$") as failed:
        the_cluster("auto")
    assert failed.value.failure.exit_code == EXIT_USAGE
    with pytest.raises(CommandFailed, match="b on /data/two, none on /data/three") as failed:
        the_cluster("auto", Path("/data/three"))
    assert failed.value.failure.hint == "Select one by its directory: --data DIR"


def test_cluster_is_chosen_by_directory_or_as_the_running_one() -> None:
    first = DesiredCluster("a", (labelled(0),), ())
    other = labelled(0)._replace(directory="/data/two/broker-0")
    second = DesiredCluster("b", (other,), ())
    folder = Path("/data/two")
    assert meant([first, second], folder) == [second]
    assert meant([first, second], Path("/else")) == [first, second]
    assert meant([first, replace(second, stopped=True)], folder) == [first]
    assert meant([replace(first, stopped=True)], folder) == [replace(first, stopped=True)]


def test_a_machine_without_ray_is_reported_in_our_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_node, "found_address", lambda: None)
    with (
        pytest.raises(CommandFailed, match="Ray does not run here") as failed,
        on_ray("auto"),
    ):
        pass
    assert "ray start --address" in str(failed.value.failure.hint)
    assert failed.value.failure.exit_code == EXIT_UNREACHABLE
    assert capfd.readouterr() == ("", "")


def test_ray_logs_about_an_unreachable_address_are_hidden(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def connect(address: str) -> None:
        logging.getLogger("ray").error("a line of Ray's Python")
        os.write(2, b"a line of Ray's C++\n")
        raise ConnectionError(f"nobody at {address}")

    monkeypatch.setattr(ray_cluster, "check_ray_answers", lambda _: None)
    monkeypatch.setattr(ray_node, "connect", connect)
    with (
        pytest.raises(CommandFailed, match="cannot join the Ray cluster at h:1: nobody at h:1"),
        on_ray("h:1"),
    ):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_token_that_is_not_there_is_reported_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(_: str) -> None:
        raise AuthenticationError("the token cannot be read")

    monkeypatch.setattr(ray_cluster, "check_ray_answers", lambda _: None)
    monkeypatch.setattr(ray_node, "connect", connect)
    with pytest.raises(CommandFailed, match="the token cannot be read") as failed, on_ray("h:1"):
        pass
    assert "RAY_AUTH_TOKEN_PATH" in str(failed.value.failure.hint)


class Nodes:
    """Nodes of a Ray, one of which has ended; Ray notices at the second request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, learns: bool) -> None:
        self.asked = 0
        self._learns = learns
        self._now_s = 0.0
        monkeypatch.setattr(ray_node, "live_nodes", self.live)
        monkeypatch.setattr(ray, "remote", lambda _: self)
        monkeypatch.setattr(ray, "get", self.get)
        clock = SimpleNamespace(monotonic=lambda: self._now_s, sleep=self.sleep)
        monkeypatch.setattr(ray_cluster, "time", clock)

    def live(self) -> list[NodeEntry]:
        self.asked += 1
        alive = NodeEntry("alive", "10.0.0.1", {})
        gone = NodeEntry("gone", "10.0.0.2", {})
        return [alive] if self._learns and self.asked > 2 else [alive, gone]

    def options(self, *, label_selector: dict[str, str], **_: object) -> SimpleNamespace:
        (node_id,) = label_selector.values()
        return SimpleNamespace(remote=lambda *_: node_id)

    def get(self, node_id: str, timeout: float) -> NodeFacts:
        if node_id == "gone":
            raise TaskUnschedulableError(f"{node_id} does not exist any more, {timeout:g}")
        return NodeFacts("0.1.0", warnings=("a warning",))

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


def test_a_node_that_ray_has_yet_to_miss_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes(monkeypatch, learns=True)
    assert [one.node.node_id for one in surveyed("/data", "")] == ["alive"]
    assert nodes.asked == 3
    assert capsys.readouterr().err == "node alive at 10.0.0.1: a warning\n"


def test_a_node_that_stays_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Nodes(monkeypatch, learns=False)
    with pytest.raises(CommandFailed, match=r"cannot check node gone at 10\.0\.0\.2"):
        surveyed("/data", "")
