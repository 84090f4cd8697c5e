"""What turns keys and values into bytes and back.

A serializer is a function of topic, data and headers, such as a lambda around `json.dumps`, or an
object of `raylog.client.schemas`. None stays None (a tombstone) and is not passed to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    K = typing_extensions.TypeVar("K", default=bytes)
    V = typing_extensions.TypeVar("V", default=bytes)
else:  # before Python 3.13 `typing` knows no defaults, which only type checkers need
    K = TypeVar("K")
    V = TypeVar("V")

T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

Headers = Sequence[tuple[str, bytes | None]]


class Serializer(Protocol[T_contra]):
    """Key or value to bytes; what it raises reaches the caller of `send` as it is."""

    def __call__(self, topic: str, data: T_contra, headers: Headers, /) -> bytes:
        """The bytes of `data`, which is not None."""


class Deserializer(Protocol[T_co]):
    """Bytes to key or value; what it raises comes out of `poll` as DeserializationFailed."""

    def __call__(self, topic: str, data: bytes, headers: Headers, /) -> T_co:
        """What `data` means."""
