"""deploy/kubernetes: valid for the API server and KubeRay, and consistent in itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray
import yaml

from tests.unit.deploy.ray_cluster_schema import RAY_CLUSTER

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
VERSIONS = ["1.34", "1.37"]
"""Of Kubernetes: what an older cluster and a new one know."""


def documents() -> list[dict[str, Any]]:
    return [
        one
        for path in sorted(FOLDER.glob("*.yaml"))
        for one in yaml.safe_load_all(path.read_text())
    ]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in documents() if one["kind"] == kind]


def cluster() -> dict[str, Any]:
    [found] = of_kind("RayCluster")
    return found


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster()["spec"]["workerGroupSpecs"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_each_object(version: str) -> None:
    core = [one for one in documents() if one["kind"] != "RayCluster"]
    assert {one["kind"] for one in core} == {
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "Service",
        "StatefulSet",
    }
    for one in core:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_each_pod_template(version: str) -> None:
    templates = [
        cluster()["spec"]["headGroupSpec"]["template"],
        *(one["template"] for one in groups()),
    ]
    for template in templates:
        whole = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}}
        kubernetes_validate.validate(whole | {"template": template}, version, strict=True)


def test_kuberay_takes_the_cluster() -> None:
    jsonschema.validate(cluster(), RAY_CLUSTER)


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ({"spec": {"workerGroups": []}}, "workerGroups"),
        ({"spec": {"rayVersion": 2.6}}, "2.6"),
        ({"metadata": {"name": "Raylog"}}, "Raylog"),
    ],
)
def test_the_schema_refuses_what_kuberay_would(where: dict[str, Any], wrong: str) -> None:
    changed = cluster()
    for part, fields in where.items():
        changed[part] |= fields
    with pytest.raises(jsonschema.ValidationError, match=wrong):
        jsonschema.validate(changed, RAY_CLUSTER)


def test_labels_are_no_start_parameter() -> None:
    changed = cluster()
    changed["spec"]["workerGroupSpecs"][0]["rayStartParams"]["labels"] = "raylog-broker=0"
    with pytest.raises(jsonschema.ValidationError, match="labels"):
        jsonschema.validate(changed, RAY_CLUSTER)


def test_the_version_of_ray_is_the_one_that_is_locked() -> None:
    assert cluster()["spec"]["rayVersion"] == ray.__version__


def test_each_broker_has_a_label_a_volume_and_a_service_of_its_own() -> None:
    claims = {one["metadata"]["name"] for one in of_kind("PersistentVolumeClaim")}
    selected = {
        one["spec"]["selector"]["raylog-broker"]
        for one in of_kind("Service")
        if "raylog-broker" in one["spec"]["selector"]
    }
    numbers = [one["labels"]["raylog-broker"] for one in groups()]
    assert numbers == [str(number) for number in range(len(numbers))]
    assert selected == set(numbers)
    for number, group in zip(numbers, groups(), strict=True):
        template = group["template"]
        assert template["metadata"]["labels"]["raylog-broker"] == number
        assert (group["minReplicas"], group["maxReplicas"]) == (1, 1)
        [volume] = template["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == f"raylog-broker-{number}"
        assert volume["persistentVolumeClaim"]["claimName"] in claims
        [container] = template["spec"]["containers"]
        assert container["readinessProbe"]["exec"]["command"][:2] == ["raylog", "health"]
        stops = container["lifecycle"]["preStop"]["exec"]["command"]
        assert stops[:4] == ["raylog", "brokers", "stop", "--here"]
        assert int(stops[-1]) < template["spec"]["terminationGracePeriodSeconds"]


def test_the_budget_is_of_the_brokers() -> None:
    [budget] = of_kind("PodDisruptionBudget")
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    assert all(wanted <= one["template"]["metadata"]["labels"].items() for one in groups())
