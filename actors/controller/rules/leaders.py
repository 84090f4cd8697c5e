"""Elections on request (KIP-183, KIP-460), and the return of leadership to preferred replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.common_messages import PartitionKey
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import ElectLeaders, ElectOutcome
from raylog.actors.controller.rules.changes import Election
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.index import PartitionIndex, Why
from raylog.actors.controller.rules.partitions import ElectionRules, PartitionControl
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER, Record
from raylog.wire.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)

MOVES_AT_ONCE = 200
"""Partitions whose leadership returns in one step, which takes 4 ms. The next step follows at
once."""


class LeaderControl:
    """Decides about requested and preferred leaders from the image."""

    def __init__(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        settings: BrokerSettings,
        partitions: PartitionControl,
    ) -> None:
        self._image = image
        self._index = index
        self._partitions = partitions
        self._rebalances = settings.flag("auto.leader.rebalance.enable")
        self._interval_ms = 1000 * settings.number("leader.imbalance.check.interval.seconds")
        self._checked_ms: int | None = None
        self._balanced_at = -1
        """The offset at which the last check found nothing to do."""

    # ---- asked for -----------------------------------------------------------------------

    def elect(self, request: ElectLeaders) -> Decision[list[ElectOutcome]]:
        """Elect leaders; each partition succeeds or fails independently."""
        rules = self._partitions.rules()
        records: dict[tuple[str, int], Record] = {}
        outcomes = []
        partitions = request.partitions
        if partitions is None:
            partitions = self._candidates(unclean=request.unclean)
        for name, index in partitions:
            try:
                if (name, index) not in records:
                    records[(name, index)] = self._elected(name, index, request.unclean, rules)
            except KafkaError as refused:
                outcomes.append(ElectOutcome(name, index, refused.code, refused.message))
            else:
                outcomes.append(ElectOutcome(name, index))
        return Decision(list(records.values()), outcomes)

    def _candidates(self, *, unclean: bool) -> list[tuple[str, int]]:
        """Return all partitions to which an election may give another leader."""
        if unclean:
            found = [key for key, one in self._index.find(Why.UNSETTLED) if one.leader == NO_LEADER]
        else:
            found = [key for key, _ in self._displaced(self._index.brokers(Why.DISPLACED))]
        return sorted((self._image.topics[topic_id].name, index) for topic_id, index in found)

    def _elected(self, name: str, index: int, unclean: bool, rules: ElectionRules) -> Record:
        topic = self._image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"No such topic as {name}")
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopicOrPartition(f"No such partition as {name}-{index}")
        state = topic.partitions[index]
        has_leader = state.leader != NO_LEADER if unclean else state.leader == state.replicas[0]
        if has_leader:
            raise ElectionNotNeeded("Leader election not needed for topic partition.")
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        key = (topic.topic_id, index)
        change = self._partitions.change(key, state, rules.of(topic.topic_id), election=election)
        record = change.record()
        if record is not None:
            return record
        if unclean:
            raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
        raise PreferredLeaderNotAvailable("The preferred leader was not available.")

    # ---- without a request ---------------------------------------------------------------

    def balance(self, now_ms: int) -> Decision[None]:
        """Return leadership to preferred replicas that are in sync, at intervals.

        Nothing is checked before the interval has passed, or if nothing has changed since a check
        that found nothing to do.
        """
        if self._checked_ms is None:
            self._checked_ms = now_ms
        due = now_ms - self._checked_ms >= self._interval_ms
        if not (self._rebalances and due) or self._image.offset == self._balanced_at:
            return Decision([], None)
        records = list(self._moves())
        if len(records) < MOVES_AT_ONCE:
            self._checked_ms = now_ms
        if not records:
            self._balanced_at = self._image.offset
        return Decision(records, None)

    def _moves(self) -> Iterator[Record]:
        rules = self._partitions.rules()
        found = 0
        live = [one.broker_id for one in self._image.live_brokers()]
        for key, state in self._displaced(live):
            if state.replicas[0] not in state.isr:
                continue
            change = self._partitions.change(
                key, state, rules.of(key[0]), election=Election.PREFERRED
            )
            record = change.record()
            if record is not None:
                yield record
                found += 1
            if found == MOVES_AT_ONCE:
                return

    def _displaced(self, brokers: Iterable[int]) -> Iterator[tuple[PartitionKey, PartitionState]]:
        """Yield the partitions that these brokers should lead as preferred replicas, but do not."""
        for broker_id in brokers:
            yield from self._index.find(Why.DISPLACED, broker_id)
