"""The secret of links is replaced under load: all links opened meanwhile are trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from raylog.actors.names import REPLICA
from raylog.actors.runtime import rotation
from raylog.actors.runtime.base import PeerLost
from raylog.actors.runtime.link_secret import LinkSecrets, read_secrets, secrets_of, write_secrets
from raylog.actors.runtime.stream import connect_link
from raylog.wire.errors import BrokerNotAvailable
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import NewCluster, RayCluster, create

TOPIC, PARTITIONS = "kept", 2
NEW = b"n" * 32


class Store:
    """The secret's file; a step on it may fail, as if the command was killed."""

    def __init__(self, source: Path, fails_at: int = 9) -> None:
        self.source = str(source)
        self.fails_at = fails_at
        self.written = 0

    def read(self) -> LinkSecrets:
        return read_secrets(self.source)

    def write(self, secrets: LinkSecrets) -> None:
        write_secrets(self.source, secrets)
        self.written += 1
        if self.written == self.fails_at:
            raise InterruptedError


def rotate(cluster: RayCluster, store: Store, brokers: list[int]) -> LinkSecrets:
    def know(prints: tuple[str, ...] | None) -> Awaitable[None]:
        return rotation.all_know(cluster.runtime, cluster.cluster_id, brokers, prints)

    return asyncio.run(rotation.rotate(store, know, NEW, lambda _: None))


def opens(cluster: RayCluster, secrets: LinkSecrets) -> None:
    """Open a link to a broker."""

    async def main() -> None:
        [*_, ref] = [
            await cluster.runtime.find(one.name)
            for one in cluster.actors()
            if f"/{REPLICA}/" in one.name
        ]
        address = next(one for one in ref.address.split(",") if one.startswith("unix:"))
        (await connect_link(address, secrets, "test", 5)).close()

    asyncio.run(main())


@pytest.mark.long
def test_the_secret_is_replaced_under_load(new_cluster: NewCluster, local_ray: Path) -> None:
    cluster = new_cluster(brokers=3, settings={"default.replication.factor": "3"})
    cluster.start()
    old = LinkSecrets(local_ray.read_bytes())
    create(cluster.bootstrap, TOPIC, PARTITIONS)
    try:
        with (
            Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
            Writer(cluster.bootstrap, TOPIC, PARTITIONS) as writer,
        ):
            writer.until_acknowledged(50)
            with pytest.raises(BrokerNotAvailable, match="broker 9: "):
                rotate(cluster, Store(local_ray), [*cluster.broker_ids, 9])
            assert local_ray.read_bytes() == old.current, "nothing has begun"
            for step in range(2):
                with pytest.raises(InterruptedError):
                    rotate(cluster, Store(local_ray, fails_at=1), cluster.broker_ids)
                killed = cluster.kill(REPLICA, step)
                cluster.until_succeeded(REPLICA, killed, step)
                writer.until_acknowledged(50)
            assert rotate(cluster, Store(local_ray), cluster.broker_ids).accepted == (NEW,)
            opens(cluster, LinkSecrets(NEW))
            with pytest.raises(PeerLost):
                opens(cluster, old)
            killed = cluster.kill(REPLICA, 2)
            cluster.until_succeeded(REPLICA, killed, 2)
            writer.until_acknowledged(50)
            writer.finish()
            assert_nothing_lost(writer, reader)
    finally:
        write_secrets(str(local_ray), old)
        secrets_of(str(local_ray), anew=True)
