"""Requests of replicas and group coordinators to the coordinator of a transactional id."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from raylog.actors.coordination.requests import coordinator_error
from raylog.actors.coordination.rules.placement import KEPT_CHARACTERS_MAX
from raylog.actors.remote import Broker, call
from raylog.actors.runtime.base import ActorGone, Link, PeerLost, PeerTimeout, Runtime, Timer
from raylog.actors.runtime.link_table import Links
from raylog.actors.transaction.messages import ADD_PARTITIONS, AddPartitions
from raylog.wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError

log = logging.getLogger(__name__)
DEADLINE_MS = 10_000
LOCATE_TIMEOUT_MS = 5_000
KNOWN_MAX = 10_000
"""Maximum number of remembered addresses; when it is reached, all are looked up again. Those of
long ids, which may take 32 KiB, are not remembered."""
_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors after which the coordinator is looked up again."""
Settled = Callable[[list[int] | KafkaError], None]


@dataclass(eq=False, slots=True)
class _Asking:
    """One request, until it is settled."""

    asked: AddPartitions
    settled: Settled
    deadline: Timer | None = None
    is_settled: bool = False


class TransactionCoordinators:
    """Asks coordinators to add partitions to transactions, or to verify that they belong to them.

    All requests to one coordinator in the same turn of the event loop share a frame.
    """

    def __init__(self, runtime: Runtime, own_broker: str) -> None:
        self._runtime = runtime
        self._own_broker = own_broker
        self._addresses: dict[str, str] = {}
        """By transactional id."""
        self._links = Links(runtime)
        self._fresh: list[_Asking] = []

    def add_partitions(self, request: AddPartitions, settled: Settled) -> None:
        """Send a request; `settled` gets an error code for each partition, or a failure.

        It is called once, within DEADLINE_MS. The coordinator's error codes are passed on
        unchanged.
        """
        asking = _Asking(request, settled)
        asking.deadline = self._runtime.call_later(
            DEADLINE_MS,
            lambda: self._settle(asking, CoordinatorNotAvailable("the coordinator is silent")),
        )
        if not self._fresh:
            self._runtime.call_later(0, self._flush)
        self._fresh.append(asking)

    def close(self) -> None:
        """Close all links."""
        self._links.close()

    def _flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        ready: dict[str, list[_Asking]] = {}
        unknown: dict[str, list[_Asking]] = {}
        for asking in fresh:
            transactional_id = asking.asked.transactional_id
            address = self._addresses.get(transactional_id)
            if address is None:
                unknown.setdefault(transactional_id, []).append(asking)
            else:
                ready.setdefault(address, []).append(asking)
        for address, found in ready.items():
            self._send(address, found)
        for transactional_id, found in unknown.items():
            self._runtime.start(
                self._locate(transactional_id, found), f"coordinator of {transactional_id}"
            )

    async def _locate(self, transactional_id: str, found: list[_Asking]) -> None:
        try:
            _, address = await call(
                self._runtime,
                self._own_broker,
                Broker.find_transaction_coordinator,
                transactional_id,
                timeout_ms=LOCATE_TIMEOUT_MS,
            )
            if not address:
                raise CoordinatorNotAvailable(f"nobody coordinates {transactional_id!r} yet")
        except (ActorGone, PeerLost, PeerTimeout, KafkaError) as failure:
            for asking in found:
                self._settle(asking, coordinator_error(failure))
            return
        if len(self._addresses) >= KNOWN_MAX:
            self._addresses.clear()
        if len(transactional_id) <= KEPT_CHARACTERS_MAX:
            self._addresses[transactional_id] = address
        self._send(address, found)

    def _send(self, address: str, found: list[_Asking]) -> None:
        self._links.use(
            address, partial(self._request, found), lambda lost: self._lost(found, lost)
        )

    def _request(self, found: list[_Asking], link: Link) -> None:
        def answered(codes: list[list[int]], _payload: Any) -> None:
            for asking, each in zip(found, codes, strict=True):
                if not _MOVED.isdisjoint(each):
                    self._addresses.pop(asking.asked.transactional_id, None)
                self._settle(asking, list(each))

        header = [asking.asked for asking in found]
        link.request(ADD_PARTITIONS, header, (), answered, lambda why: self._lost(found, why))

    def _lost(self, found: list[_Asking], failure: Exception) -> None:
        log.info("a transaction coordinator does not answer: %s", failure)
        for asking in found:
            self._addresses.pop(asking.asked.transactional_id, None)
            self._settle(asking, coordinator_error(failure))

    def _settle(self, asking: _Asking, outcome: list[int] | KafkaError) -> None:
        if asking.is_settled:
            return
        asking.is_settled = True
        assert asking.deadline is not None
        asking.deadline.cancel()
        asking.settled(outcome)
