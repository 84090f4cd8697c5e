"""Shell of a broker's group coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from raylog.actors.common_messages import Route
from raylog.actors.config import BrokerSettings, settings_of
from raylog.actors.coordination.actor import CoordinatorActor
from raylog.actors.coordination.requests import Reply, take_request
from raylog.actors.coordination.rules.joining import Joined, light_parts
from raylog.actors.coordination.rules.placement import key_weight
from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.group.assigning import Assigning, AssignTask
from raylog.actors.group.assignor_processes import AssignorProcesses
from raylog.actors.group.hosting import ShardHost
from raylog.actors.group.lag import GroupLag
from raylog.actors.group.marking import take_markers
from raylog.actors.group.rules.all_offsets import has_too_much_metadata, without_offsets
from raylog.actors.group.rules.failures import DeleteGroupPart, ListGroupsPart, failed
from raylog.actors.group.rules.gathering import (
    KINDS,
    Gathering,
    Kind,
    names_several,
    stored,
    weight_of,
)
from raylog.actors.group.rules.gradual import GradualResponse, InTurns
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.splitting import split
from raylog.actors.group.sampling import sample_groups, sample_rebalances
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import PartitionCreated, Record, TopicDeleted
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import GROUP
from raylog.actors.runtime.base import Link, LinkRequest, Runtime
from raylog.actors.transaction.client import TransactionCoordinators
from raylog.actors.transaction.messages import COMPLETE_TRANSACTION
from raylog.wire.errors import (
    InvalidRequest,
    KafkaError,
)
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

log = logging.getLogger(__name__)
ITEMS_A_TURN = 1_000
"""Items of a large answer, such as members, partitions and offsets, that are handled in one
turn."""
PARTS_ASKED_MAX = 8
"""Unanswered parts of large requests. Each part may write up to a MiB."""


class GroupCoordinatorActor(CoordinatorActor[ShardHost]):
    """Serves requests of clients and of transaction coordinators over links."""

    role = GROUP
    _failed = staticmethod(failed)

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str,
        broker_id: int,
        cluster_id: str,
        settings: dict[str, str],
    ) -> None:
        super().__init__(runtime, name, broker_id, cluster_id)
        self._broker_id = broker_id
        self._start_up = BrokerSettings(settings)
        self._settings = settings_of(GroupSettings, self._start_up)
        self._assigning = Assigning()
        self._processes = AssignorProcesses(runtime)
        self._transactions = TransactionCoordinators(runtime, self._broker)
        self._lag = GroupLag(
            runtime,
            cluster_id,
            self._image,
            self._shards,
            self._start_up.number("metrics.groups.max"),
        )
        self._room = asyncio.Semaphore(PARTS_ASKED_MAX)
        """Bounds the number of unanswered parts of large requests."""
        self._turn = asyncio.Lock()
        """Held by the large request whose part is being handled."""

    def _open_host(self, link: Link, route: Route) -> ShardHost:
        return ShardHost(
            self._runtime,
            link,
            route,
            self._image,
            self._lease,
            self._settings,
            self._assigning,
            self._begin_assigning,
            self._transactions,
            self._is_verified,
        )

    def _is_verified(self) -> bool:
        """Whether transactional offsets of older clients are verified with their coordinator."""
        configs = broker_configs(self._image, self._start_up, self._broker_id)
        return configs.flag("transaction.partition.verification.enable")

    async def stop(self) -> None:
        """Answer all waiting requests and close all links."""
        self._shards.close("the coordinator stops")
        self._transactions.close()
        self._lag.close()
        self._processes.close()

    async def metrics(self) -> ProcessMetrics:
        """Sample this coordinator's metrics."""
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
        """Apply metadata; a from_offset of -1 means a whole snapshot, sent in parts."""
        deleted: set[str] = set()

        def changing(whole: MetadataImage | None) -> None:
            deleted.update(_deleted(self._image, whole, records))

        if not await self._copy.take_in(from_offset, to_offset, records, parts, changing):
            return
        self._metadata_applied()
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

    # ---- assignors -----------------------------------------------------------------------

    def _begin_assigning(self) -> None:
        """Start processes for the assignments that groups need now."""
        for task in self._assigning.take_tasks():
            self._runtime.start(self._assign(task), f"assign for {task.group_id}")

    async def _assign(self, task: AssignTask) -> None:
        outcome = await self._processes.run(task)
        wanted = self._assigning.finished(task, outcome)
        host = self._shards.get(self._partition_of(task.group_id))
        if wanted and host is not None:
            host.assignment_is_ready(task.group_id)
        self._begin_assigning()

    # ---- what gateways ask ---------------------------------------------------------------

    def link_received(self, request: LinkRequest) -> None:
        """Handle a client's request, or markers from a transaction coordinator."""
        if request.kind == COMPLETE_TRANSACTION:
            take_markers(request, self._shards)
            return
        if request.kind != GROUP:
            request.fail(InvalidRequest(f"a group coordinator does not answer {request.kind}"))
            return
        errors = self._shards.counts.errors
        take_request(self._runtime, request, self._dispatch, self._dispatch_large, errors)

    def _dispatch(self, call: ClientCall[Any], reply: Reply) -> None:
        """Dispatch a request. Even a small request may have a large answer."""
        request = call.request
        if isinstance(request, ListGroupsRequest):
            self._runtime.start(self._list_groups(call, reply), "a list of groups")
        elif self._is_gradual(request, call.version):
            is_of_one = _items_of(request, call.version) == 1
            answering = self._answer_gradually if is_of_one else self._dispatch_large
            self._runtime.start(answering(call, reply), "a large answer")
        else:
            self._dispatch_part(call, reply)

    def _is_gradual(self, request: Any, version: int) -> bool:
        """Whether the response takes more than one turn."""
        if not names_several(request, version):
            return self._fetches_much(request)
        kind = KINDS[type(request)]
        items = kind.items(request)
        if len(items) > 1 and sum(key_weight(kind.group_of(item)) for item in items) > ITEMS_A_TURN:
            return True
        left = ITEMS_A_TURN
        for item in items:
            left -= self._weight(kind, item)
            if left < 0:
                return True
        return False

    def _fetches_much(self, request: Any) -> bool:
        """Whether an OffsetFetch up to version 7 requests all offsets of a group that has many."""
        if not isinstance(request, OffsetFetchRequest) or request.topics is not None:
            return False
        host = self._shards.get(self._partition_of(request.group_id))
        return host is not None and stored(host.shard, request.group_id) > ITEMS_A_TURN

    def _weight(self, kind: Kind, item: Any) -> int:
        host = self._shards.get(self._partition_of(kind.group_of(item)))
        return weight_of(kind, None if host is None else host.shard, item)

    def _light_parts(self, call: ClientCall[Any]) -> Iterator[ClientCall[Any]]:
        """Split a request by groups into parts that are answered quickly."""
        if not names_several(call.request, call.version):
            yield call
            return
        kind = KINDS[type(call.request)]
        some: list[Any] = []
        size = 0
        for item in kind.items(call.request):
            weight = self._weight(kind, item)
            if some and size + weight > ITEMS_A_TURN:
                yield replace(call, request=kind.part(call.request, some))
                some, size = [], 0
            some.append(item)
            size += weight
        yield replace(call, request=kind.part(call.request, some))

    def _dispatch_part(self, call: ClientCall[Any], reply: Reply) -> None:
        request = call.request
        if names_several(request, call.version):
            self._gather(call, reply)
        else:
            self._ask(request.group_id, call, reply)

    async def _dispatch_large(self, call: ClientCall[Any], reply: Reply) -> None:
        """Dispatch a large request in parts, and release the parts that were sent.

        Each part waits for earlier ones, because otherwise everything they write would be queued at
        once. A request that cannot be split does not wait here: it may be a request that waits for
        other members.
        """
        if isinstance(call.request, ListGroupsRequest):
            await self._list_groups(call, reply)
            return
        parts = deque(await self._runtime.run_blocking(split, call.request))
        if isinstance(call.request, OffsetFetchRequest):
            reply = partial(_fetched, reply)
        call = replace(call, request=None)
        joined = Joined(reply)
        is_split = len(parts) > 1
        while parts:
            for light in self._light_parts(replace(call, request=parts.popleft())):
                answered = joined.part()
                if is_split:
                    await self._room.acquire()
                    answered = partial(_answer_part, self._room, answered)
                if self._is_gradual(light.request, light.version):
                    await self._answer_gradually(light, answered)
                    continue
                async with self._turn:
                    self._dispatch_part(light, answered)
                    await self._runtime.sleep(0)
        joined.all_asked()

    async def _list_groups(self, call: ClientCall[Any], reply: Reply) -> None:
        parts = partial(_list_parts, call.request)
        await self._list(call, reply, ListGroupsResponse(), parts)

    async def _answer_gradually(self, call: ClientCall[Any], reply: Reply) -> None:
        """Answer a request about one group with much to describe or delete."""
        request = call.request
        if not names_several(request, call.version):
            group_id = request.group_id
        else:
            kind = KINDS[type(request)]
            (item,) = kind.items(request)
            group_id = kind.group_of(item)
        if isinstance(request, DeleteGroupsRequest):
            reply(await self._delete(group_id, call))
            return
        found = await self._answer_of(group_id, replace(call, request=InTurns(request)))
        if isinstance(found, GradualResponse):
            try:
                await self._take_turns(found)
            except KafkaError as failure:
                reply(failed(request, call.version, failure))
                return
            found = found.response
        reply(found)

    async def _take_turns(self, gradual: GradualResponse[Any]) -> None:
        is_complete = False
        while not is_complete:
            async with self._turn:
                is_complete = gradual.take_turn(ITEMS_A_TURN)
                await self._runtime.sleep(0)

    async def _delete(self, group_id: str, call: ClientCall[Any]) -> Any:
        """Delete a group with many offsets, offsets first; fails if a member joins meanwhile."""
        host = self._shards.get(self._partition_of(group_id))
        offsets = [] if host is None else list(host.shard.offsets_of(group_id))
        for start in range(0, len(offsets), ITEMS_A_TURN):
            part = DeleteGroupPart(group_id, offsets[start : start + ITEMS_A_TURN])
            answer = await self._answer_of(group_id, replace(call, request=part))
            if answer.results[0].error_code:
                return answer
        return await self._answer_of(group_id, call)

    def _answer_of(self, group_id: str, call: ClientCall[Any]) -> Awaitable[Any]:
        """Return the response of the shard that holds a group."""
        answer = asyncio.get_running_loop().create_future()
        self._ask(group_id, call, answer.set_result)
        return answer

    def _gather(self, call: ClientCall[Any], reply: Reply) -> None:
        """Ask the shards that hold the groups of one request."""
        kind = KINDS[type(call.request)]
        items = kind.items(call.request)
        places: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            index = self._partition_of(kind.group_of(item))
            places.setdefault(index, []).append(place)
        if not items:
            reply(kind.response([]))
            return
        gathering = Gathering(kind, [None] * len(items), len(places), reply)
        for here in places.values():
            part = kind.part(call.request, [items[place] for place in here])
            self._ask(
                kind.group_of(items[here[0]]),
                ClientCall(0, part, call.version, call.client_id, call.client_host),
                gathering.part(here),
            )


def _list_parts(request: ListGroupsRequest, host: ShardHost) -> Iterator[ListGroupsPart]:
    for group_ids in light_parts(host.shard.group_ids(), ITEMS_A_TURN):
        yield ListGroupsPart(request, group_ids)


def _items_of(request: Any, version: int) -> int:
    """Return roughly how many groups a request names."""
    return len(KINDS[type(request)].items(request)) if names_several(request, version) else 1


def _fetched(reply: Reply, whole: OffsetFetchResponse) -> None:
    reply(without_offsets(whole) if has_too_much_metadata(whole) else whole)


def _answer_part(room: asyncio.Semaphore, answered: Reply, response: Any) -> None:
    room.release()
    answered(response)


def _deleted(
    image: MetadataImage, whole: MetadataImage | None, records: Sequence[Record]
) -> set[str]:
    """Return the names of topics that an update deletes, by records or by another image."""
    if whole is not None:
        return {one.name for topic_id, one in image.topics.items() if topic_id not in whole.topics}
    gone = {record.topic_id for record in records if isinstance(record, TopicDeleted)}
    return {image.topics[topic_id].name for topic_id in gone if topic_id in image.topics}
