"""What the shells of all coordinators share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic

from raylog.actors.common_messages import Route, RouteUpdate
from raylog.actors.coordination.lease import LeaseHolder
from raylog.actors.coordination.requests import Reply
from raylog.actors.coordination.rules.joining import Joined
from raylog.actors.coordination.rules.placement import partition_of
from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.coordination.shards import HostT, LedShards
from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import broker_name
from raylog.actors.peers.metadata_copies import MetadataCopy
from raylog.actors.runtime.base import Link, Runtime
from raylog.wire.errors import ErrorCode, KafkaError, NotCoordinator


class CoordinatorActor(ABC, Generic[HostT]):
    """Shell of a broker's coordinator: one shard for each partition that the broker leads.

    The Broker pushes metadata and routes. Gateways forward their clients' requests over links.
    """

    role: ClassVar[str]

    def __init__(self, runtime: Runtime, name: str, broker_id: int, cluster_id: str) -> None:
        self._runtime = runtime
        self._name = name
        self._broker = broker_name(cluster_id, broker_id)
        self._topic = KINDS[self.role].topic
        self._image = MetadataImage()
        self._copy = MetadataCopy(runtime, self._image)
        self._lease = LeaseHolder(runtime, self._broker, self._image)
        self._shards = LedShards(runtime, self._image, broker_id, self._topic, self._open_host)

    @abstractmethod
    def _open_host(self, link: Link, route: Route) -> HostT:
        """Open the shard of a partition, over a link to its leader."""

    @staticmethod
    @abstractmethod
    def _failed(request: Any, version: int, failure: KafkaError) -> Any:
        """Return the response that answers a request with an error."""

    async def start(self) -> None:
        """Ask for a lease, so that the Broker is found early; the shards come with the routes."""
        self._lease.renew()

    async def ping(self) -> dict[str, Any]:
        """Report who this is, so that a restarted Broker can adopt it."""
        return {"name": self._name, "pid": os.getpid(), "partitions": self._shards.partitions}

    async def apply_routes(self, update: RouteUpdate) -> None:
        """Apply changes of the served partitions and of their Replica processes."""
        await self._shards.apply_routes(update)

    def _metadata_applied(self) -> None:
        """Close the shards that are led elsewhere now."""
        self._shards.close_lost()
        self._lease.metadata_applied()

    def link_lost(self, peer: int) -> None:
        """Do nothing: clients whose answers a lost gateway would have carried ask again."""

    def _partition_of(self, key: str) -> int:
        """Return the partition whose leader coordinates a key, or -1 if there is no topic yet."""
        if self._image.topic(self._topic) is None:
            return -1
        return partition_of(self._image, self.role, key)[0]

    def _ask(self, key: str, call: ClientCall[Any], reply: Reply) -> None:
        """Ask the shard that holds a key."""
        try:
            host = self._host_of(key)
        except KafkaError as failure:
            reply(self._failed(call.request, call.version, failure))
        else:
            host.ask(call, reply)

    def _host_of(self, key: str) -> HostT:
        if self._image.topic(self._topic) is None:
            raise NotCoordinator(f"nobody coordinates {key!r} yet")
        return self._shards.host_of(key, partition_of(self._image, self.role, key))

    async def _list(
        self,
        call: ClientCall[Any],
        reply: Reply,
        first: Any,
        parts: Callable[[HostT], Iterator[Any]],
    ) -> None:
        """Ask every shard, in parts, and join the responses to the response `first`.

        A shard that is loading or not open fails the answer, as in Kafka.
        """
        try:
            self._shards.check_complete()
        except KafkaError as failure:
            reply(self._failed(call.request, call.version, failure))
            return
        joined = Joined(partial(_listed, reply))
        joined.part()(first)
        for host in self._shards:
            for part in parts(host):
                host.ask(replace(call, request=part), partial(_listed_here, joined.part()))
                await self._runtime.sleep(0)
        joined.all_asked()


def _listed_here(answered: Reply, response: Any) -> None:
    """Skip a shard that has moved: the client asks its next coordinator, too."""
    moved = response.error_code == ErrorCode.NOT_COORDINATOR
    answered(type(response)() if moved else response)


def _listed(reply: Reply, whole: Any) -> None:
    reply(type(whole)(error_code=whole.error_code) if whole.error_code else whole)
