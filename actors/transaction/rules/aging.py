"""Times out open transactions, and forgets transactional ids that are no longer used."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.coordination.rules.step import Counted
from raylog.actors.transaction.rules.ending import fence
from raylog.actors.transaction.rules.ids import Ids
from raylog.actors.transaction.rules.state import RESTING
from raylog.actors.transaction.rules.step import TransactionStep
from raylog.wire.errors import CoordinatorLoadInProgress


def abort_timed_out(ids: Ids, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
    """Abort and fence transactions that have exceeded their timeout."""
    for transactional_id in transactional_ids:
        found = ids.transactions.get(transactional_id)
        if found is not None and found.is_timed_out(step.now_ms):
            try:
                fence(ids, step, found)
                step.counted.append(Counted.TIMED_OUT)
            except CoordinatorLoadInProgress:
                continue  # out of epochs, and no other id yet: retry at the next sweep


def forget_expired(ids: Ids, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
    """Forget ids that have been idle for transactional.id.expiration.ms."""
    oldest_ms = step.now_ms - ids.settings.expiration_ms
    for transactional_id in transactional_ids:
        found = ids.transactions.get(transactional_id)
        if found is not None and found.state in RESTING and found.last_update_ms <= oldest_ms:
            ids.forget(step, transactional_id)
