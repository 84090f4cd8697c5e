"""Interfaces that convert keys and values to bytes and back.

A serializer is a function of topic, data and headers, such as a lambda around `json.dumps`, or an
object from `raylog.client.schemas`. None (a tombstone) stays None and is not passed to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    K = typing_extensions.TypeVar("K", default=bytes)
    V = typing_extensions.TypeVar("V", default=bytes)
else:  # before Python 3.13, typing has no type parameter defaults, which only type checkers need
    K = TypeVar("K")
    V = TypeVar("V")

T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

Headers = Sequence[tuple[str, bytes | None]]


class Serializer(Protocol[T_contra]):
    """Converts a key or value to bytes; its exceptions reach the caller of `send` unchanged."""

    def __call__(self, topic: str, data: T_contra, headers: Headers, /) -> bytes:
        """Return the bytes of `data`, which is never None."""


class Deserializer(Protocol[T_co]):
    """Converts bytes to a key or value; `poll` raises its exceptions as DeserializationFailed."""

    def __call__(self, topic: str, data: bytes, headers: Headers, /) -> T_co:
        """Return the value of `data`."""
