"""Shell of the group coordinator of one broker: a shard for each partition that it leads.

The Broker pushes metadata and routes, gateways forward their clients' requests over links.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from raylog.actors.config import BrokerSettings
from raylog.actors.coordination.joining import Joined, light_parts
from raylog.actors.coordination.led import LedShards
from raylog.actors.coordination.placement import group_partition, key_weight
from raylog.actors.coordination.requests import take_request
from raylog.actors.coordination.step import Asked
from raylog.actors.group.all_offsets import has_too_much_metadata, without_offsets
from raylog.actors.group.api import GROUP_REQUEST, DeleteGroupPart, ListGroupsPart, failed
from raylog.actors.group.assigning import Assigning, AssignTask
from raylog.actors.group.assignor_processes import AssignorProcesses
from raylog.actors.group.gathering import KINDS, Gathering, Kind, names_several, stored, weight_of
from raylog.actors.group.hosting import ShardHost
from raylog.actors.group.lag import GroupLag
from raylog.actors.group.marking import take_markers
from raylog.actors.group.sampling import sample_groups, sample_rebalances
from raylog.actors.group.settings import group_settings
from raylog.actors.group.splitting import split
from raylog.actors.group.telling import InTurns, Telling
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import PartitionCreated, Record, TopicDeleted
from raylog.actors.metadata.snapshots import MetadataCopy
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import OFFSETS_TOPIC, broker_name
from raylog.actors.ports import Route, RouteUpdate
from raylog.actors.runtime.base import Link, LinkRequest, Runtime
from raylog.actors.transaction.api import COMPLETE_TRANSACTION
from raylog.actors.transaction.client import TransactionCoordinators
from raylog.wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

log = logging.getLogger(__name__)
TOLD = 1_000
"""Members, partitions and offsets that are told of several groups in one turn."""
PARTS_ASKED_MAX = 8
"""Parts of large requests that are not answered: what they write has a MiB each."""


class GroupCoordinatorActor:
    """Serves requests over links, of clients and of transactions' coordinators.

    Control calls come from the Broker.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str,
        broker_id: int,
        cluster_id: str,
        settings: dict[str, str],
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._broker_id = broker_id
        self._start_up = BrokerSettings(settings)
        self._settings = group_settings(self._start_up)
        self._image = MetadataImage()
        self._copy = MetadataCopy(runtime, self._image)
        self._assigning = Assigning()
        self._processes = AssignorProcesses()
        self._transactions = TransactionCoordinators(runtime, broker_name(cluster_id, broker_id))
        self._shards = LedShards(runtime, self._image, broker_id, OFFSETS_TOPIC, self._open_host)
        self._lag = GroupLag(
            runtime,
            cluster_id,
            self._image,
            self._shards,
            self._start_up.number("metrics.groups.max"),
        )
        self._room = asyncio.Semaphore(PARTS_ASKED_MAX)
        """For parts of large requests."""
        self._turn = asyncio.Lock()
        """Held by the large request whose part is handled."""

    def _open_host(self, link: Link, route: Route) -> ShardHost:
        return ShardHost(
            self._runtime,
            link,
            route,
            self._image,
            self._settings,
            self._assigning,
            self._begin_assigning,
            self._transactions,
            self._is_verified,
        )

    def _is_verified(self) -> bool:
        """Whether transactional offsets of older clients wait for their coordinator's word."""
        configs = broker_configs(self._image, self._start_up, self._broker_id)
        return configs.flag("transaction.partition.verification.enable")

    async def start(self) -> None:
        """Ready at once: what there is to coordinate comes with the routes."""

    async def stop(self) -> None:
        """Answer who waits, close every link."""
        self._shards.close("the coordinator stops")
        self._transactions.close()
        self._lag.close()
        self._processes.close()

    async def ping(self) -> dict[str, Any]:
        """Who is here: for adoption by a restarted Broker."""
        return {"name": self._name, "pid": os.getpid(), "partitions": self._shards.partitions}

    async def metrics(self) -> ProcessMetrics:
        """What this coordinator has counted."""
        samples = Samples()
        self._shards.sample(samples)
        counts = self._shards.counts
        sample_rebalances(counts.counted, counts.leavings, samples)
        await sample_groups(self._runtime, self._shards, samples)
        self._lag.sample(samples)
        return process_metrics(self._runtime, samples)

    # ---- what the Broker pushes ----------------------------------------------------------

    async def apply_metadata(
        self,
        from_offset: int,
        to_offset: int,
        records: Sequence[Record],
        parts: Sequence[bytes] = (),
    ) -> None:
        """Take in metadata; from_offset -1 brings a whole snapshot in parts."""
        deleted: set[str] = set()

        def changing(whole: MetadataImage | None) -> None:
            deleted.update(_deleted(self._image, whole, records))

        if not await self._copy.take_in(from_offset, to_offset, records, parts, changing):
            return
        self._shards.close_lost()
        changed = {
            self._image.topics[record.topic_id].name
            for record in records
            if isinstance(record, PartitionCreated) and record.topic_id in self._image.topics
        }
        if from_offset < 0:
            changed = set(self._image.topic_ids)
        if deleted or changed:
            for host in self._shards:
                host.topics_changed(deleted, changed)

    async def apply_routes(self, update: RouteUpdate) -> None:
        """Take in which partitions are served here, and by which Replica process."""
        await self._shards.apply_routes(update)

    # ---- assignors -----------------------------------------------------------------------

    def _begin_assigning(self) -> None:
        """Have processes carry out what the groups need now."""
        for task in self._assigning.take_tasks():
            self._runtime.start(self._assign(task), f"assign for {task.group_id}")

    async def _assign(self, task: AssignTask) -> None:
        outcome = await self._runtime.run_blocking(self._processes.run, task)
        wanted = self._assigning.finished(task, outcome)
        host = self._shards.get(self._partition_of(task.group_id))
        if wanted and host is not None:
            host.assignment_is_ready(task.group_id)
        self._begin_assigning()

    # ---- what gateways ask ---------------------------------------------------------------

    def link_received(self, request: LinkRequest) -> None:
        """Answer one client's request, or markers of a transaction's coordinator."""
        if request.kind == COMPLETE_TRANSACTION:
            take_markers(request, self._shards)
            return
        if request.kind != GROUP_REQUEST:
            request.fail(InvalidRequest(f"a group coordinator does not answer {request.kind}"))
            return
        errors = self._shards.counts.errors
        take_request(self._runtime, request, self._dispatch, self._dispatch_large, errors)

    def link_lost(self, peer: int) -> None:
        """A gateway is gone; members whose answers it would have carried ask again."""

    def _dispatch(self, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        """Dispatch a request; one that asks little may be answered with much."""
        request = asked.request
        if isinstance(request, ListGroupsRequest):
            self._runtime.start(self._list(asked, reply), "a list of groups")
        elif self._tells_much(request, asked.version):
            is_of_one = _items_of(request, asked.version) == 1
            answering = self._tell if is_of_one else self._dispatch_large
            self._runtime.start(answering(asked, reply), "a large answer")
        else:
            self._dispatch_part(asked, reply)

    def _tells_much(self, request: Any, version: int) -> bool:
        """Whether an answer takes more than one turn."""
        if not names_several(request, version):
            return self._fetches_much(request)
        kind = KINDS[type(request)]
        items = kind.items(request)
        if len(items) > 1 and sum(key_weight(kind.group_of(item)) for item in items) > TOLD:
            return True
        left = TOLD
        for item in items:
            left -= self._weight(kind, item)
            if left < 0:
                return True
        return False

    def _fetches_much(self, request: Any) -> bool:
        """Whether it is for all offsets of one group, in the older form, and there are many."""
        if not isinstance(request, OffsetFetchRequest) or request.topics is not None:
            return False
        host = self._shards.get(self._partition_of(request.group_id))
        return host is not None and stored(host.shard, request.group_id) > TOLD

    def _weight(self, kind: Kind, item: Any) -> int:
        host = self._shards.get(self._partition_of(kind.group_of(item)))
        return weight_of(kind, None if host is None else host.shard, item)

    def _light_parts(self, asked: Asked[Any]) -> Iterator[Asked[Any]]:
        """Requests about some of the groups, each with an answer that is soon made."""
        if not names_several(asked.request, asked.version):
            yield asked
            return
        kind = KINDS[type(asked.request)]
        some: list[Any] = []
        size = 0
        for item in kind.items(asked.request):
            weight = self._weight(kind, item)
            if some and size + weight > TOLD:
                yield replace(asked, request=kind.part(asked.request, some))
                some, size = [], 0
            some.append(item)
            size += weight
        yield replace(asked, request=kind.part(asked.request, some))

    def _dispatch_part(self, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        request = asked.request
        if names_several(request, asked.version):
            self._gather(asked, reply)
        else:
            self._ask(request.group_id, asked, reply)

    async def _dispatch_large(self, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        """Dispatch a large request in parts; what has been asked is let go, for the collector.

        Parts wait for earlier ones, or all of what they write would be queued at once. A request
        that cannot be split waits for nobody: it may be one that waits for other members.
        """
        parts = deque(await self._runtime.run_blocking(split, asked.request))
        if isinstance(asked.request, OffsetFetchRequest):
            reply = partial(_fetched, reply)
        asked = replace(asked, request=None)
        joined = Joined(reply)
        is_split = len(parts) > 1
        while parts:
            for light in self._light_parts(replace(asked, request=parts.popleft())):
                answered = joined.part()
                if is_split:
                    await self._room.acquire()
                    answered = partial(_answer_part, self._room, answered)
                if self._tells_much(light.request, light.version):
                    await self._tell(light, answered)
                    continue
                async with self._turn:
                    self._dispatch_part(light, answered)
                    await self._runtime.sleep(0)
        joined.all_asked()

    async def _tell(self, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        """Answer a request about one group that has to do with much."""
        request = asked.request
        if not names_several(request, asked.version):
            group_id = request.group_id
        else:
            kind = KINDS[type(request)]
            (item,) = kind.items(request)
            group_id = kind.group_of(item)
        if isinstance(request, DeleteGroupsRequest):
            reply(await self._delete(group_id, asked))
            return
        found = await self._answer_of(group_id, replace(asked, request=InTurns(request)))
        if isinstance(found, Telling):
            try:
                await self._take_turns(found)
            except KafkaError as failure:
                reply(failed(request, asked.version, failure))
                return
            found = found.response
        reply(found)

    async def _take_turns(self, telling: Telling[Any]) -> None:
        is_told = False
        while not is_told:
            async with self._turn:
                is_told = telling.take_turn(TOLD)
                await self._runtime.sleep(0)

    async def _delete(self, group_id: str, asked: Asked[Any]) -> Any:
        """Delete a group with many offsets, these first. A member that joins meanwhile ends it."""
        host = self._shards.get(self._partition_of(group_id))
        offsets = [] if host is None else list(host.shard.offsets_of(group_id))
        for start in range(0, len(offsets), TOLD):
            part = DeleteGroupPart(group_id, offsets[start : start + TOLD])
            answer = await self._answer_of(group_id, replace(asked, request=part))
            if answer.results[0].error_code:
                return answer
        return await self._answer_of(group_id, asked)

    def _answer_of(self, group_id: str, asked: Asked[Any]) -> Awaitable[Any]:
        """What the shard that holds a group answers."""
        answer = asyncio.get_running_loop().create_future()
        self._ask(group_id, asked, answer.set_result)
        return answer

    def _ask(self, group_id: str, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        """Ask the shard that holds a group."""
        try:
            host = self._host_of(group_id)
        except KafkaError as failure:
            reply(failed(asked.request, asked.version, failure))
        else:
            host.ask(asked, reply)

    def _host_of(self, group_id: str) -> ShardHost:
        if self._image.topic(OFFSETS_TOPIC) is None:
            raise NotCoordinator(f"nobody coordinates {group_id!r} yet")
        return self._shards.host_of(group_id, group_partition(self._image, group_id))

    def _gather(self, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        """Ask the shards that hold the groups of one request."""
        kind = KINDS[type(asked.request)]
        items = kind.items(asked.request)
        places: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            index = self._partition_of(kind.group_of(item))
            places.setdefault(index, []).append(place)
        if not items:
            reply(kind.response([]))
            return
        gathering = Gathering(kind, [None] * len(items), len(places), reply)
        for here in places.values():
            part = kind.part(asked.request, [items[place] for place in here])
            self._ask(
                kind.group_of(items[here[0]]),
                Asked(0, part, asked.version, asked.client_id, asked.client_host),
                gathering.part(here),
            )

    def _partition_of(self, group_id: str) -> int:
        if self._image.topic(OFFSETS_TOPIC) is None:
            return -1
        return group_partition(self._image, group_id)[0]

    async def _list(self, asked: Asked[Any], reply: Callable[[Any], None]) -> None:
        """Ask every shard; one that is loading, or not open, fails the answer, as in Kafka."""
        try:
            self._shards.check_complete()
        except KafkaError as failure:
            reply(failed(asked.request, asked.version, failure))
            return
        joined = Joined(partial(_listed, reply))
        joined.part()(ListGroupsResponse())
        for host in self._shards:
            for group_ids in light_parts(host.shard.group_ids(), TOLD):
                part = replace(asked, request=ListGroupsPart(asked.request, group_ids))
                host.ask(part, partial(_listed_here, joined.part()))
                await self._runtime.sleep(0)
        joined.all_asked()


def _items_of(request: Any, version: int) -> int:
    """About how many groups a request is."""
    return len(KINDS[type(request)].items(request)) if names_several(request, version) else 1


def _listed_here(answered: Callable[[Any], None], response: ListGroupsResponse) -> None:
    """Who lists everything asks the next coordinator of a shard as well."""
    moved = response.error_code == ErrorCode.NOT_COORDINATOR
    answered(ListGroupsResponse() if moved else response)


def _listed(reply: Callable[[Any], None], whole: ListGroupsResponse) -> None:
    reply(ListGroupsResponse(error_code=whole.error_code) if whole.error_code else whole)


def _fetched(reply: Callable[[Any], None], whole: OffsetFetchResponse) -> None:
    reply(without_offsets(whole) if has_too_much_metadata(whole) else whole)


def _answer_part(room: asyncio.Semaphore, answered: Callable[[Any], None], response: Any) -> None:
    room.release()
    answered(response)


def _deleted(
    image: MetadataImage, whole: MetadataImage | None, records: Sequence[Record]
) -> set[str]:
    """Names of the topics that an update will take away, by its records or with another image."""
    if whole is not None:
        return {one.name for topic_id, one in image.topics.items() if topic_id not in whole.topics}
    gone = {record.topic_id for record in records if isinstance(record, TopicDeleted)}
    return {image.topics[topic_id].name for topic_id in gone if topic_id in image.topics}
