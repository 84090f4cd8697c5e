"""Ray's key-value store, which lives with Ray's head: what all machines of a cluster may look up.

It is lost with the head, unless Ray has a Redis. This process must be connected to Ray. Blocking.
"""

from __future__ import annotations

from ray.experimental import internal_kv

_NAMESPACE = "raylog"


def get(key: str) -> bytes | None:
    """The value of a key; None if there is none."""
    value: bytes | None = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
    return value


def put(key: str, value: bytes, *, overwrite: bool = True) -> None:
    """Set a key; without `overwrite` only where it has no value."""
    internal_kv._internal_kv_put(key, value, overwrite=overwrite, namespace=_NAMESPACE)


def delete(key: str) -> None:
    """Take the value of a key away; none there is fine."""
    internal_kv._internal_kv_del(key, namespace=_NAMESPACE)


def keys(prefix: str) -> list[str]:
    """The keys that begin so, sorted."""
    found = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
    return sorted(key.decode() for key in found)
