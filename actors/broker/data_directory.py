"""Opens a broker's data directory, and checks that it is the one the cluster knows.

Ray's copy of the wanted brokers (`supervisor.rules.desired`) says which directory a broker has. Ray
may start the broker before its disk is mounted; the empty mount point is then refused instead of
formatted. Without such a copy, as on one machine, an empty directory is formatted.
"""

from __future__ import annotations

import logging
from pathlib import Path

from raylog.actors.broker.identity import ANY_DIRECTORY, DataDirectory, Expected, Identity
from raylog.actors.metadata.records import Voters
from raylog.actors.runtime.base import PeerLost, PeerTimeout, Runtime
from raylog.actors.supervisor.actor import ensure_supervisor
from raylog.actors.supervisor.notes import forget_loss, note_loss
from raylog.actors.supervisor.rules.desired import (
    NOT_FOUNDED,
    DesiredCluster,
    cluster_key,
    read_desired,
)
from raylog.wire.errors import KafkaError, LogDirNotFound
from raylog.wire.uuids import random_uuid, to_base64

log = logging.getLogger(__name__)


async def open_directory(
    runtime: Runtime,
    path: Path,
    cluster_id: str,
    broker_id: int,
    voters: Voters,
    *,
    fsync: bool,
) -> DataDirectory:
    """Lock a broker's directory, or format a new one if that is allowed.

    `voters` are those of a new cluster. Raises what `DataDirectory` raises.
    """
    key = cluster_key(cluster_id)
    contents = await runtime.kv_get(key)
    desired = None if contents is None else read_desired(contents, key)
    if desired is not None:
        runtime.start(_see_to_supervisor(runtime, desired), "see to the supervisor")
    own_id = dict(voters).get(broker_id)
    if own_id is None or (desired is not None and desired.offset != NOT_FOUNDED):
        own_id = to_base64(random_uuid(runtime.random))
    wanted = Identity(cluster_id, broker_id, own_id, voters)
    expected = _expected(desired, broker_id)
    try:
        opened = await runtime.run_blocking(
            lambda: DataDirectory(path, wanted, fsync=fsync, disk=runtime.disk, expected=expected)
        )
    except LogDirNotFound:
        await note_loss(runtime, cluster_id, broker_id, expected.directory_id)
        raise
    if desired is not None:
        runtime.start(_is_found(runtime, cluster_id, broker_id), "forget a loss")
    return opened


def _expected(desired: DesiredCluster | None, broker_id: int) -> Expected:
    wanted = None if desired is None else desired.broker(broker_id)
    if wanted is None:
        return ANY_DIRECTORY
    return Expected(wanted.directory_id, wanted.replaced)


async def _is_found(runtime: Runtime, cluster_id: str, broker_id: int) -> None:
    try:
        await forget_loss(runtime, cluster_id, broker_id)
    except (PeerLost, PeerTimeout) as failure:
        log.warning(
            "the note of broker %d's lost directory cannot be removed: %s", broker_id, failure
        )


async def _see_to_supervisor(runtime: Runtime, desired: DesiredCluster) -> None:
    try:
        await ensure_supervisor(runtime, desired.cluster_id, desired.brokers)
    except (PeerLost, PeerTimeout, KafkaError) as failure:
        log.warning("no supervisor could be created: %s", failure)
