"""The filter of ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.coordination.rules.placement import key_weight
from raylog.actors.patterns import STEPS_MAX, BadPattern, Pattern, compiled, steps_of
from raylog.actors.transaction.rules.state import LABELS, State, Transaction
from raylog.wire.errors import InvalidRegularExpression
from raylog.wire.messages.list_transactions import ListTransactionsRequest


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of one ListTransactions request."""

    request: ListTransactionsRequest
    states: frozenset[State]
    producer_ids: frozenset[int]
    pattern: Pattern | None

    def weight_of(self, transactional_id: str, most: int) -> int:
        """Return the cost of checking an id; `most` is the work of one turn of the event loop."""
        weight = key_weight(transactional_id)
        if self.pattern is None:
            return weight
        return weight + most * steps_of(self.pattern, transactional_id) // STEPS_MAX

    def passes(self, found: Transaction, now_ms: int) -> bool:
        """Whether an id is listed. One that never had a transaction is older than any duration."""
        request = self.request
        if request.state_filters and found.state not in self.states:
            return False
        if self.producer_ids and found.producer_id not in self.producer_ids:
            return False
        if request.duration_filter >= 0 and now_ms - found.start_ms <= request.duration_filter:
            return False
        return self.pattern is None or self.pattern.fullmatch(found.transactional_id) is not None


def filter_of(request: ListTransactionsRequest) -> Filter:
    """Build the filter of a request; raises InvalidRegularExpression."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compiled(request.transactional_id_pattern)
        except BadPattern as wrong:
            raise InvalidRegularExpression(str(wrong)) from wrong
    states = frozenset(LABELS[name] for name in request.state_filters if name in LABELS)
    return Filter(request, states, frozenset(request.producer_id_filters), pattern)


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """Return the requested states that do not exist."""
    return [name for name in request.state_filters if name not in LABELS]


@dataclass(frozen=True, slots=True)
class ListTransactionsPart:
    """Part of a ListTransactions request: some of a shard's ids."""

    wanted: Filter
    transactional_ids: list[str]
