"""Notes about single brokers: JSON values under keys of their own in Ray's key-value store.

Several machines can write theirs concurrently. They are lost with the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from raylog.actors.runtime.base import Runtime
from raylog.actors.supervisor.rules.holds import Hold
from raylog.actors.supervisor.rules.losses import Loss
from raylog.wire.errors import KafkaStorageError

T = TypeVar("T")
VERSION = 1
HOLD, LOSS = "hold", "lost"
"""The kinds of notes."""


def note_key(kind: str, cluster_id: str, broker_id: int) -> str:
    """Return the key of a note about a broker in Ray's key-value store."""
    return f"{kind}/{cluster_id}/{broker_id}"


def to_note(values: Mapping[str, Any]) -> bytes:
    """Encode values for storage."""
    return json.dumps({"version": VERSION, **values}).encode()


def read_note(contents: bytes, source: str, make: Callable[[dict[str, Any]], T]) -> T:
    """Decode what `to_note` has stored and convert it with `make`.

    Raises KafkaStorageError, which names the source, for anything else.
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
            f"{source} is not readable: it begins with {contents[:40]!r} ({broken})"
        ) from broken


async def notes_of(
    runtime: Runtime,
    kind: str,
    cluster_id: str,
    make: Callable[[dict[str, Any]], T],
    unreadable: Callable[[int, KafkaStorageError], T | None],
) -> dict[int, T]:
    """Return all notes of a kind, by broker id. Raises PeerLost, PeerTimeout.

    `unreadable` replaces a note that this build cannot read (None skips it), so that it does not
    affect other brokers.
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


# ---- holds ------------------------------------------------------------------------------


def _hold(values: dict[str, Any]) -> Hold:
    return Hold(
        int(values["broker_id"]),
        str(values["why"]),
        str(values["node_id"]),
        int(values["since_ms"]),
    )


async def holds_of(runtime: Runtime, cluster_id: str) -> dict[int, Hold]:
    """Return the holds of a cluster, by broker id. Raises PeerLost, PeerTimeout.

    A hold that this build cannot read still holds its broker, until that is started by command.
    """
    return await notes_of(
        runtime, HOLD, cluster_id, _hold, lambda broker_id, why: Hold(broker_id, str(why))
    )


async def hold(runtime: Runtime, cluster_id: str, held: Hold) -> None:
    """Create the hold of a broker, or replace it."""
    await runtime.kv_put(note_key(HOLD, cluster_id, held.broker_id), to_note(asdict(held)))


async def release(
    runtime: Runtime, cluster_id: str, broker_id: int, only: Hold | None = None
) -> None:
    """Remove a hold, if there is one. With `only`, keep another hold that was created meanwhile."""
    if only is None or (await holds_of(runtime, cluster_id)).get(broker_id) == only:
        await runtime.kv_delete(note_key(HOLD, cluster_id, broker_id))


# ---- losses -----------------------------------------------------------------------------


def _loss(values: dict[str, Any]) -> Loss:
    return Loss(int(values["broker_id"]), str(values["directory_id"]), int(values["since_ms"]))


async def losses_of(runtime: Runtime, cluster_id: str) -> dict[int, Loss]:
    """Return the losses of a cluster, by broker id. Raises PeerLost, PeerTimeout.

    One that this build cannot read is ignored: its broker is not replaced.
    """
    return await notes_of(runtime, LOSS, cluster_id, _loss, lambda *_: None)


async def note_loss(runtime: Runtime, cluster_id: str, broker_id: int, directory_id: str) -> None:
    """Record that a directory is gone, unless that is recorded already.

    Raises PeerLost, PeerTimeout, KafkaStorageError.
    """
    key = note_key(LOSS, cluster_id, broker_id)
    contents = await runtime.kv_get(key)
    if contents is None or read_note(contents, key, _loss).directory_id != directory_id:
        lost = Loss(broker_id, directory_id, runtime.now_ms())
        await runtime.kv_put(key, to_note(asdict(lost)))


async def forget_loss(runtime: Runtime, cluster_id: str, broker_id: int) -> None:
    """Remove the loss of a broker, if there is one. Raises PeerLost, PeerTimeout."""
    await runtime.kv_delete(note_key(LOSS, cluster_id, broker_id))
