"""Notes about single brokers, each a key of its own in Ray's key-value store, as JSON.

So many machines can make theirs at the same time. They are lost with that store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import KafkaStorageError

T = TypeVar("T")
VERSION = 1


def note_key(kind: str, cluster_id: str, broker_id: int) -> str:
    """Under which Ray's key-value store has a note about a broker."""
    return f"{kind}/{cluster_id}/{broker_id}"


def to_note(values: Mapping[str, Any]) -> bytes:
    """Plain values as they are stored."""
    return json.dumps({"version": VERSION, **values}).encode()


def read_note(contents: bytes, source: str, make: Callable[[dict[str, Any]], T]) -> T:
    """What `make` makes of what `to_note` has stored.

    Raises KafkaStorageError, naming the source, for anything else.
    """
    try:
        values = json.loads(contents)
        if values["version"] > VERSION:
            raise KafkaStorageError(
                f"{source} has format {values['version']}, this build knows {VERSION}"
            )
        return make(values)
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise KafkaStorageError(
            f"{source} is of no use: it begins with {contents[:40]!r} ({broken})"
        ) from broken


async def notes_of(
    runtime: Runtime,
    kind: str,
    cluster_id: str,
    make: Callable[[dict[str, Any]], T],
    unreadable: Callable[[int, KafkaStorageError], T | None],
) -> dict[int, T]:
    """All notes of a kind, by broker id. Raises PeerLost, PeerTimeout.

    `unreadable` says what stands for one that this build cannot read (None: nothing does): the
    other brokers are no worse for it.
    """
    found = {}
    prefix = f"{kind}/{cluster_id}/"
    for key in await runtime.kv_keys(prefix):
        contents = await runtime.kv_get(key)
        number = key.removeprefix(prefix)
        if contents is None or not number.isdecimal():
            continue
        try:
            note: T | None = read_note(contents, key, make)
        except KafkaStorageError as failure:
            note = unreadable(int(number), failure)
        if note is not None:
            found[int(number)] = note
    return found
