"""Ray's key-value store in Ray's head, which all machines of a cluster can read.

It is lost with the head, unless Ray uses a Redis. This process must be connected to Ray. Blocking.
"""

from __future__ import annotations

from ray.experimental import internal_kv

_NAMESPACE = "raylog"


def get(key: str) -> bytes | None:
    """Return the value of a key, or None."""
    value: bytes | None = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
    return value


def put(key: str, value: bytes, *, overwrite: bool = True) -> None:
    """Set a key; without `overwrite` only if it has no value."""
    internal_kv._internal_kv_put(key, value, overwrite=overwrite, namespace=_NAMESPACE)


def delete(key: str) -> None:
    """Delete the value of a key, if it exists."""
    internal_kv._internal_kv_del(key, namespace=_NAMESPACE)


def keys(prefix: str) -> list[str]:
    """Return the keys with this prefix, sorted."""
    found = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
    return sorted(key.decode() for key in found)
