"""Commands on a Ray that runs already: what they act on, and what fails."""

from __future__ import annotations

import pytest

from raylog.actors.runtime import ray_node
from raylog.actors.supervisor.desired import DesiredCluster
from raylog.cli import ray_cluster
from raylog.cli.ray_cluster import cluster_to_change, the_cluster
from tests.support.supervised import labelled


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
