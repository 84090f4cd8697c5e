"""Shell of a broker's transaction coordinator.

Leaders of partitions and group coordinators ask it about transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from raylog.actors.common_messages import Route
from raylog.actors.config import BrokerSettings, settings_of
from raylog.actors.coordination.actor import CoordinatorActor
from raylog.actors.coordination.requests import Reply, take_request
from raylog.actors.coordination.rules.failpoints import Failpoints
from raylog.actors.coordination.rules.joining import Together, light_parts
from raylog.actors.coordination.rules.placement import key_weight
from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.metadata.records import Record
from raylog.actors.metrics.samples import ProcessMetrics, Samples, process_metrics
from raylog.actors.names import TRANSACTION
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import ActorGone, Link, LinkRequest, PeerLost, PeerTimeout, Runtime
from raylog.actors.transaction.hosting import TransactionHost
from raylog.actors.transaction.markers import MarkerSender
from raylog.actors.transaction.messages import ADD_PARTITIONS, AddPartitions
from raylog.actors.transaction.rules.failures import failed
from raylog.actors.transaction.rules.filtering import (
    Filter,
    ListTransactionsPart,
    filter_of,
    unknown_states,
)
from raylog.actors.transaction.rules.ids import ProducerIdPool
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.sampling import sample_ends, sample_transactions
from raylog.wire.errors import (
    InvalidRequest,
    KafkaError,
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
"""Transactional ids listed in one turn; a long id counts several times."""
DESCRIBED_AT_ONCE = 250
"""Transactional ids and partitions described in one turn; a long id counts several times."""
PRODUCER_IDS_LOW = 100
"""The controller is asked for more when fewer are left."""
ALLOCATE_TIMEOUT_MS = 10_000


class TransactionCoordinatorActor(CoordinatorActor[TransactionHost]):
    """Answers clients' requests and ADD_PARTITIONS over links; the Broker calls the rest."""

    role = TRANSACTION
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
        self._settings = settings_of(TransactionSettings, BrokerSettings(settings))
        self.failpoints = Failpoints()
        self._producer_ids = ProducerIdPool()
        self._awaiting_ids: list[Callable[[], None]] = []
        self._allocating = False
        self._sender = MarkerSender(runtime, cluster_id, self._image, self.failpoints)

    def _open_host(self, link: Link, route: Route) -> TransactionHost:
        return TransactionHost(
            self._runtime,
            link,
            route,
            self._image,
            self._lease,
            self._settings,
            self._producer_ids,
            self._sender,
            self.failpoints,
        )

    async def stop(self) -> None:
        """Answer all waiting requests and close all links."""
        self._shards.close("the coordinator stops")
        self._sender.close()

    async def metrics(self) -> ProcessMetrics:
        """Sample this coordinator's metrics."""
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
        """Apply metadata; a from_offset of -1 means a whole snapshot, sent in parts."""
        if not await self._copy.take_in(from_offset, to_offset, records, parts):
            return
        self._metadata_applied()
        self._sender.metadata_changed()

    # ---- what comes over links -----------------------------------------------------------

    def link_received(self, request: LinkRequest) -> None:
        """Answer a request of a client, of another coordinator, or of a leader."""
        if request.kind == ADD_PARTITIONS:
            self._add_partitions(request)
        elif request.kind == TRANSACTION:
            errors = self._shards.counts.errors
            take_request(self._runtime, request, self._client_asks, self._large_client_asks, errors)
        else:
            request.fail(
                InvalidRequest(f"a transaction coordinator does not answer {request.kind}")
            )
        if self._producer_ids.was_short:
            self._allocate()

    def _add_partitions(self, request: LinkRequest) -> None:
        asked = [AddPartitions.of(one) for one in request.header]
        together = Together(len(asked), request.reply)
        for place, one in enumerate(asked):
            self._ask(one.transactional_id, ClientCall(0, one, 0, "", ""), together.part(place))

    def _client_asks(self, call: ClientCall[Any], reply: Reply) -> None:
        message = call.request
        match message:
            case ListTransactionsRequest():
                self._runtime.start(self._list_transactions(call, reply), "a list of transactions")
            case DescribeTransactionsRequest():
                self._runtime.start(self._describe(call, reply), "a large answer")
            case AddPartitionsToTxnRequest():
                self._ask(message.v3_and_below_transactional_id, call, reply)
            case InitProducerIdRequest():
                self._with_ids(lambda: self._ask(message.transactional_id or "", call, reply))
            case _:
                self._ask(message.transactional_id, call, reply)

    async def _large_client_asks(self, call: ClientCall[Any], reply: Reply) -> None:
        """Handle a large request, with other requests between its parts."""
        if isinstance(call.request, DescribeTransactionsRequest):
            await self._describe(call, reply)
        else:
            self._client_asks(call, reply)

    def _host_of(self, key: str) -> TransactionHost:
        if not key:
            raise InvalidRequest("the transactional id is empty")
        return super()._host_of(key)

    async def _describe(self, call: ClientCall[DescribeTransactionsRequest], reply: Reply) -> None:
        """Ask the shard of each id separately.

        In a large request an id that is named twice is described once, because otherwise a few
        bytes could request gigabytes.
        """
        wanted = call.request.transactional_ids
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
            self._ask(transactional_id, replace(call, request=one), together.part(place))

    def _weight(self, transactional_id: str) -> int:
        """Return the cost of describing a transaction, which grows with its partitions."""
        weight = key_weight(transactional_id)
        host = self._shards.get(self._partition_of(transactional_id))
        found = None if host is None else host.shard.ids.transactions.get(transactional_id)
        return weight if found is None else weight + sum(map(len, found.partitions.values()))

    async def _list_transactions(self, call: ClientCall[Any], reply: Reply) -> None:
        try:
            wanted = filter_of(call.request)
        except KafkaError as failure:
            reply(failed(call.request, call.version, failure))
            return
        unknown = unknown_states(call.request)
        first = ListTransactionsResponse(unknown_state_filters=unknown)
        await self._list(call, reply, first, partial(_list_parts, wanted))

    # ---- producer ids --------------------------------------------------------------------

    def _with_ids(self, action: Callable[[], None]) -> None:
        """Run `action` once producer ids are available, or once allocating some has failed."""
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
            block = await call(
                self._runtime,
                self._broker,
                Broker.allocate_producer_ids,
                timeout_ms=ALLOCATE_TIMEOUT_MS,
            )
            self._producer_ids.add(block.first, block.count)
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            log.warning("no producer ids from the controller: %s", failure)
        self._allocating = False
        self._producer_ids.was_short = False
        waiting, self._awaiting_ids = self._awaiting_ids, []
        for action in waiting:
            action()


def _list_parts(wanted: Filter, host: TransactionHost) -> Iterator[ListTransactionsPart]:
    weight_of = partial(wanted.weight_of, most=LISTED_AT_ONCE)
    for ids in light_parts(host.shard.transactional_ids(), LISTED_AT_ONCE, weight_of):
        yield ListTransactionsPart(wanted, ids)
