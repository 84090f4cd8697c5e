"""Where an actor finds the secret of links.

| source           | the secret is                                                               |
|------------------|-----------------------------------------------------------------------------|
| a path           | in that file of the machine                                                 |
| `env:VARIABLE`   | in the file that this environment variable names where the actor runs       |
| `ray:CLUSTER ID` | in Ray's key-value store, which Ray's token protects                        |

Ray carries the last two to wherever it starts an actor. Ray is imported only for the last one.
"""

from __future__ import annotations

import os
from pathlib import Path

FROM_ENVIRONMENT, FROM_RAY = "env:", "ray:"
SECRET_BYTES_MIN = 16


class SecretMissing(Exception):
    """The secret is not where it should be."""


def read_secret(source: str) -> bytes:
    """The secret of a source; raises SecretMissing, OSError, ValueError for one that is too short.

    Blocking.
    """
    if source.startswith(FROM_RAY):
        from raylog.actors.runtime import ray_kv

        secret = ray_kv.get(_key(source.removeprefix(FROM_RAY)))
        if secret is None:
            raise SecretMissing(f"Ray's key-value store has no secret {source}")
    else:
        secret = _path(source).read_bytes()
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(
            f"{source} holds {len(secret)} bytes, a cluster secret has at least {SECRET_BYTES_MIN}"
        )
    return secret


def give_to_ray(cluster_id: str, secret: bytes) -> str:
    """Put a cluster's secret into Ray's key-value store, if there is none; returns its source."""
    from raylog.actors.runtime import ray_kv

    ray_kv.put(_key(cluster_id), secret, overwrite=False)
    return f"{FROM_RAY}{cluster_id}"


def _key(cluster_id: str) -> str:
    return f"secret/{cluster_id}"


def _path(source: str) -> Path:
    if not source.startswith(FROM_ENVIRONMENT):
        return Path(source)
    variable = source.removeprefix(FROM_ENVIRONMENT)
    path = os.environ.get(variable)
    if not path:
        raise SecretMissing(
            f"{variable} is not set here: it names the file with the cluster's secret, and Ray "
            "must be started with it on every machine"
        )
    return Path(path)
