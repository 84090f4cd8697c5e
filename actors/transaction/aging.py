"""What time does to transactional ids: open transactions time out, silent ids are forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.coordination.step import Counted
from raylog.actors.transaction.ending import fence
from raylog.actors.transaction.ids import Ids
from raylog.actors.transaction.state import RESTING
from raylog.actors.transaction.step import TransactionStep
from raylog.wire.errors import CoordinatorLoadInProgress


def abort_timed_out(ids: Ids, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
    """Abort what is open for longer than its producer wanted, and fence that."""
    for transactional_id in transactional_ids:
        found = ids.transactions.get(transactional_id)
        if found is not None and found.is_timed_out(step.now_ms):
            try:
                fence(ids, step, found)
                step.counted.append(Counted.TIMED_OUT)
            except CoordinatorLoadInProgress:
                continue  # its epochs are used up and there is no other id yet: next time


def forget_expired(ids: Ids, step: TransactionStep, transactional_ids: Iterable[str]) -> None:
    """Forget ids whose producers have been silent for transactional.id.expiration.ms."""
    oldest_ms = step.now_ms - ids.settings.expiration_ms
    for transactional_id in transactional_ids:
        found = ids.transactions.get(transactional_id)
        if found is not None and found.state in RESTING and found.last_update_ms <= oldest_ms:
            ids.forget(step, transactional_id)
