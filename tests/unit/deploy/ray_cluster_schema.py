"""What KubeRay 1.5 accepts in a RayCluster, as far as deploy/kubernetes uses it.

Kubernetes offers no schema to install for custom resources. This one has the fields that we use
with their types, and refuses all others. Pod templates are left to the schema of Kubernetes.
"""

from __future__ import annotations

from typing import Any

LABEL = "^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


_START = {
    **TEXTS,
    # KubeRay refuses labels among these: a group has a field for them.
    "propertyNames": {"not": {"enum": ["labels", "address", "redis-password"]}},
}
_TEMPLATE = {"type": "object", "required": ["spec"]}
_COUNT = {"type": "integer", "minimum": 0}
_SECRET = _object(
    ["valueFrom"],
    valueFrom=_object(
        ["secretKeyRef"],
        secretKeyRef=_object(["name", "key"], name={"type": "string"}, key={"type": "string"}),
    ),
)
RAY_CLUSTER = _object(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=_object(
        ["name"], name={"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$"}
    ),
    spec=_object(
        ["rayVersion", "headGroupSpec", "workerGroupSpecs"],
        rayVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        enableInTreeAutoscaling={"type": "boolean"},
        authOptions=_object(["mode"], mode={"enum": ["disabled", "token"]}),
        gcsFaultToleranceOptions=_object(
            ["redisAddress"], redisAddress={"type": "string"}, redisPassword=_SECRET
        ),
        headGroupSpec=_object(
            ["rayStartParams", "template"], rayStartParams=_START, template=_TEMPLATE
        ),
        workerGroupSpecs={
            "type": "array",
            "minItems": 1,
            "items": _object(
                ["groupName", "replicas", "minReplicas", "maxReplicas", "template"],
                groupName={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
                replicas=_COUNT,
                minReplicas=_COUNT,
                maxReplicas=_COUNT,
                labels={**TEXTS, "additionalProperties": {"type": "string", "pattern": LABEL}},
                rayStartParams=_START,
                template=_TEMPLATE,
            ),
        },
    ),
)
