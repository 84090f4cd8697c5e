"""Brokers whose data directories are gone, and since when: noted by those that find them empty.

A broker that does not open its directory because there is none notes that; one that opens it takes
the note away. What was noted first counts, whoever finds the same again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from raylog.actors.runtime.base import Runtime
from raylog.actors.supervisor.notes import note_key, notes_of, read_note, to_note

LOSS = "lost"
"""The kind of these notes."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A directory that was expected and not there."""

    broker_id: int
    directory_id: str
    since_ms: int
    """Wall-clock time in ms since the epoch."""


def _loss(values: dict[str, Any]) -> Loss:
    return Loss(int(values["broker_id"]), str(values["directory_id"]), int(values["since_ms"]))


async def losses_of(runtime: Runtime, cluster_id: str) -> dict[int, Loss]:
    """The losses of a cluster, by broker id. Raises PeerLost, PeerTimeout.

    One that this build cannot read is none: its broker is not replaced.
    """
    return await notes_of(runtime, LOSS, cluster_id, _loss, lambda *_: None)


async def note_loss(runtime: Runtime, cluster_id: str, broker_id: int, directory_id: str) -> None:
    """Note that a directory is gone, unless that is known.

    Raises PeerLost, PeerTimeout, KafkaStorageError.
    """
    key = note_key(LOSS, cluster_id, broker_id)
    contents = await runtime.kv_get(key)
    if contents is None or read_note(contents, key, _loss).directory_id != directory_id:
        lost = Loss(broker_id, directory_id, runtime.now_ms())
        await runtime.kv_put(key, to_note(asdict(lost)))


async def forget_loss(runtime: Runtime, cluster_id: str, broker_id: int) -> None:
    """The broker has a directory; no note there is fine. Raises PeerLost, PeerTimeout."""
    await runtime.kv_delete(note_key(LOSS, cluster_id, broker_id))
