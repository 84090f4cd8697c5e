"""Shell of the transaction coordinator of one broker: a shard for each partition that it leads.

The Broker pushes metadata and routes, gateways forward their clients' requests over links, leaders
of partitions and group coordinators ask about transactions.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import ProducerIdBlock
from raylog.actors.coordination.failpoints import Failpoints
from raylog.actors.coordination.joining import Joined, light_parts
from raylog.actors.coordination.led import LedShards
from raylog.actors.coordination.placement import key_weight, transaction_partition
from raylog.actors.coordination.requests import take_request
from raylog.actors.coordination.step import Asked
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Record
from raylog.actors.metadata.snapshots import MetadataCopy
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import TRANSACTIONS_TOPIC, broker_name
from raylog.actors.ports import Route, RouteUpdate
from raylog.actors.runtime.base import ActorGone, Link, LinkRequest, PeerLost, PeerTimeout, Runtime
from raylog.actors.transaction.api import ADD_PARTITIONS, TRANSACTION_REQUEST, AddPartitions
from raylog.actors.transaction.failures import failed
from raylog.actors.transaction.filtering import ListTransactionsPart, filter_of, unknown_states
from raylog.actors.transaction.gathering import Together
from raylog.actors.transaction.hosting import TransactionHost
from raylog.actors.transaction.ids import ProducerIdPool
from raylog.actors.transaction.markers import MarkerSender
from raylog.actors.transaction.sampling import sample_ends, sample_transactions
from raylog.actors.transaction.settings import transaction_settings
from raylog.wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
)
from raylog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

log = logging.getLogger(__name__)
LISTED_AT_ONCE = 1_000
"""Transactional ids that are looked at in one turn to be listed; a long id is several."""
DESCRIBED_AT_ONCE = 250
"""Transactional ids that are looked at in one go, and their partitions; a long id is several."""
PRODUCER_IDS_LOW = 100
"""With fewer left the controller is asked for more."""
ALLOCATE_TIMEOUT_MS = 10_000
Reply = Callable[[Any], None]


class TransactionCoordinatorActor:
    """Serves TRANSACTION_REQUEST and ADD_PARTITIONS over links; the Broker calls the rest."""

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
        self._broker = broker_name(cluster_id, broker_id)
        self._settings = transaction_settings(BrokerSettings(settings))
        self._image = MetadataImage()
        self._copy = MetadataCopy(runtime, self._image)
        self.failpoints = Failpoints()
        self._producer_ids = ProducerIdPool()
        self._awaiting_ids: list[Callable[[], None]] = []
        self._allocating = False
        self._sender = MarkerSender(runtime, cluster_id, self._image, self.failpoints)
        self._shards = LedShards(
            runtime, self._image, broker_id, TRANSACTIONS_TOPIC, self._open_host
        )

    def _open_host(self, link: Link, route: Route) -> TransactionHost:
        return TransactionHost(
            self._runtime,
            link,
            route,
            self._image,
            self._settings,
            self._producer_ids,
            self._sender,
            self.failpoints,
        )

    async def start(self) -> None:
        """Ready at once: what there is to coordinate comes with the routes."""

    async def stop(self) -> None:
        """Answer who waits, close every link."""
        self._shards.close("the coordinator stops")
        self._sender.close()

    async def ping(self) -> dict[str, Any]:
        """Who is here: for adoption by a restarted Broker."""
        return {"name": self._name, "pid": os.getpid(), "partitions": self._shards.partitions}

    async def metrics(self) -> ProcessMetrics:
        """What this coordinator has counted."""
        samples = Samples()
        self._shards.sample(samples)
        sample_ends(self._shards.counts.counted, samples)
        await sample_transactions(self._runtime, self._shards, samples)
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
        if not await self._copy.take_in(from_offset, to_offset, records, parts):
            return
        self._shards.close_lost()
        self._sender.metadata_changed()

    async def apply_routes(self, update: RouteUpdate) -> None:
        """Take in which partitions are served here, and by which Replica process."""
        await self._shards.apply_routes(update)

    # ---- what comes over links -----------------------------------------------------------

    def link_received(self, request: LinkRequest) -> None:
        """Answer a client's request, or another coordinator's or leader's."""
        if request.kind == ADD_PARTITIONS:
            self._add_partitions(request)
        elif request.kind == TRANSACTION_REQUEST:
            errors = self._shards.counts.errors
            take_request(self._runtime, request, self._client_asks, self._large_client_asks, errors)
        else:
            request.fail(
                InvalidRequest(f"a transaction coordinator does not answer {request.kind}")
            )
        if self._producer_ids.was_short:
            self._allocate()

    def link_lost(self, peer: int) -> None:
        """Whoever asked is gone, and asks again elsewhere."""

    def _add_partitions(self, request: LinkRequest) -> None:
        asked = [AddPartitions.of(one) for one in request.header]
        together = Together(len(asked), request.reply)
        for place, one in enumerate(asked):
            self._ask(one.transactional_id, Asked(0, one, 0, "", ""), together.part(place))

    def _client_asks(self, asked: Asked[Any], reply: Reply) -> None:
        message = asked.request
        match message:
            case ListTransactionsRequest():
                self._runtime.start(self._list(asked, reply), "a list of transactions")
            case DescribeTransactionsRequest():
                self._runtime.start(self._describe(asked, reply), "a large answer")
            case AddPartitionsToTxnRequest():
                self._ask(message.v3_and_below_transactional_id, asked, reply)
            case InitProducerIdRequest():
                self._with_ids(lambda: self._ask(message.transactional_id or "", asked, reply))
            case _:
                self._ask(message.transactional_id, asked, reply)

    async def _large_client_asks(self, asked: Asked[Any], reply: Reply) -> None:
        """Have other requests heard between the parts of a large one."""
        if isinstance(asked.request, DescribeTransactionsRequest):
            await self._describe(asked, reply)
        else:
            self._client_asks(asked, reply)

    def _ask(self, transactional_id: str, asked: Asked[Any], reply: Reply) -> None:
        """Ask the shard that holds an id."""
        try:
            if not transactional_id:
                raise InvalidRequest("the transactional id is empty")
            if self._image.topic(TRANSACTIONS_TOPIC) is None:
                raise NotCoordinator(f"nobody coordinates {transactional_id!r} yet")
            place = transaction_partition(self._image, transactional_id)
            host = self._shards.host_of(transactional_id, place)
        except KafkaError as failure:
            reply(failed(asked.request, asked.version, failure))
        else:
            host.ask(asked, reply)

    async def _describe(self, asked: Asked[DescribeTransactionsRequest], reply: Reply) -> None:
        """Ask the shard of each id on its own.

        Of many, what is named twice is described once: few bytes could ask for gigabytes.
        """
        wanted = asked.request.transactional_ids
        if len(wanted) > DESCRIBED_AT_ONCE:
            wanted = list(dict.fromkeys(wanted))

        def done(answers: list[DescribeTransactionsResponse]) -> None:
            found = [one for answer in answers for one in answer.transaction_states]
            reply(DescribeTransactionsResponse(transaction_states=found))

        together = Together(len(wanted), done)
        left = DESCRIBED_AT_ONCE
        for place, transactional_id in enumerate(wanted):
            if left <= 0:
                await self._runtime.sleep(0)
                left = DESCRIBED_AT_ONCE
            left -= self._weight(transactional_id)
            one = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            self._ask(transactional_id, replace(asked, request=one), together.part(place))

    def _weight(self, transactional_id: str) -> int:
        """How long it takes to describe a transaction: the longer, the more partitions it has."""
        weight = key_weight(transactional_id)
        if self._image.topic(TRANSACTIONS_TOPIC) is None:
            return weight
        index, _ = transaction_partition(self._image, transactional_id)
        host = self._shards.get(index)
        found = None if host is None else host.shard.ids.transactions.get(transactional_id)
        return weight if found is None else weight + sum(map(len, found.partitions.values()))

    async def _list(self, asked: Asked[Any], reply: Reply) -> None:
        """Ask every shard; one that is loading, or not open, fails the answer, as in Kafka."""
        try:
            wanted = filter_of(asked.request)
            self._shards.check_complete()
        except KafkaError as failure:
            reply(failed(asked.request, asked.version, failure))
            return
        joined = Joined(partial(_listed, reply))
        unknown = unknown_states(asked.request)
        joined.part()(ListTransactionsResponse(unknown_state_filters=unknown))
        weight_of = partial(wanted.weight_of, most=LISTED_AT_ONCE)
        for host in self._shards:
            for ids in light_parts(host.shard.transactional_ids(), LISTED_AT_ONCE, weight_of):
                part = replace(asked, request=ListTransactionsPart(wanted, ids))
                host.ask(part, partial(_listed_here, joined.part()))
                await self._runtime.sleep(0)
        joined.all_asked()

    # ---- producer ids --------------------------------------------------------------------

    def _with_ids(self, action: Callable[[], None]) -> None:
        """Run `action` once there are producer ids, or none could be had."""
        if len(self._producer_ids) < PRODUCER_IDS_LOW:
            self._allocate()
        if self._producer_ids:
            action()
        else:
            self._awaiting_ids.append(action)

    def _allocate(self) -> None:
        if not self._allocating:
            self._allocating = True
            self._runtime.start(self._fetch_block(), "fetch producer ids")

    async def _fetch_block(self) -> None:
        try:
            block: ProducerIdBlock = await self._runtime.call(
                self._broker, "allocate_producer_ids", timeout_ms=ALLOCATE_TIMEOUT_MS
            )
            self._producer_ids.add(block.first, block.count)
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.warning("no producer ids from the controller: %s", failure)
        self._allocating = False
        self._producer_ids.was_short = False
        waiting, self._awaiting_ids = self._awaiting_ids, []
        for action in waiting:
            action()


def _listed_here(answered: Reply, response: ListTransactionsResponse) -> None:
    """Who lists everything asks the next coordinator of a shard as well."""
    moved = response.error_code == ErrorCode.NOT_COORDINATOR
    answered(ListTransactionsResponse() if moved else response)


def _listed(reply: Reply, whole: ListTransactionsResponse) -> None:
    reply(ListTransactionsResponse(error_code=whole.error_code) if whole.error_code else whole)
