"""The link requests that a Replica process answers, and the parts that answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raylog.actors.common_messages import PartitionKey
from raylog.actors.replica import messages as api
from raylog.actors.replica.deletions import Deletions
from raylog.actors.replica.failures import StorageFailures
from raylog.actors.replica.follower_sessions import FollowerSessions
from raylog.actors.replica.gateway_sessions import GatewaySessions
from raylog.actors.replica.isolation import Isolation
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.lookups import Lookups
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.producing import Producing
from raylog.actors.replica.reads import Reads
from raylog.actors.replica.throttler import Throttler
from raylog.actors.runtime.base import LinkRequest, Runtime
from raylog.actors.runtime.deadlines import Deadlines
from raylog.actors.transaction.client import TransactionCoordinators
from raylog.actors.transaction.messages import WRITE_MARKERS


class Requests:
    """The parts of one process that answer requests, and the table of their handlers."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[PartitionKey, Partition],
        failures: StorageFailures,
        log_manager: LogManager,
        throttler: Throttler,
        *,
        broker: str,
        session_ms: int,
    ) -> None:
        self._transactions = TransactionCoordinators(runtime, broker)
        deadlines = Deadlines(runtime)
        isolation = Isolation(runtime, partitions, broker, session_ms)
        self.reads = Reads(runtime, partitions, failures)
        self.gateway_sessions = GatewaySessions(runtime, partitions)
        self.followers = FollowerSessions(
            runtime, deadlines, partitions, throttler, self.reads, isolation.follower_fetched
        )
        deletions = Deletions(runtime, partitions, deadlines, log_manager, self.followers)
        self._producing = Producing(
            runtime, partitions, deadlines, self._transactions, log_manager, failures
        )
        lookups = Lookups(runtime, partitions, self.reads, failures)
        self.handlers: dict[str, Callable[[LinkRequest], None]] = {
            api.PRODUCE: self._producing.produce,
            api.PRODUCE_IN_TRANSACTION: self._producing.produce_in_transaction,
            WRITE_MARKERS: self._producing.write_markers,
            api.CLAIM: self._producing.claim,
            api.FETCH: self.gateway_sessions.fetch,
            api.FETCH_END: self.gateway_sessions.end,
            api.OFFSET_FOR: lookups.offset_for,
            api.EPOCH_END: lookups.epoch_end,
            api.PRODUCERS: lookups.producers,
            api.DELETE_RECORDS: deletions.delete,
            api.REPLICATE: self.followers.replicate,
        }

    @property
    def waiting(self) -> dict[str, int]:
        """Number of fetch requests that wait here, by kind of sender."""
        return {
            "fetch": len(self.gateway_sessions.sessions.parked),
            "follower": len(self.followers.sessions.parked),
        }

    def link_lost(self, peer: int) -> None:
        """Forget the sessions and claims of a lost link."""
        self._producing.link_lost(peer)
        self.gateway_sessions.sessions.link_lost(peer)
        self.followers.sessions.link_lost(peer)

    def close(self) -> None:
        """Close the links to coordinators."""
        self._transactions.close()
