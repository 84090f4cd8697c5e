"""What a compacted partition may show of a deleted key."""

from __future__ import annotations

import pytest

from raylog.actors.common_messages import TopicId
from raylog.simulation.clients import ACKS_ALL
from raylog.simulation.properties import Checks
from raylog.simulation.retention.history import KeyedLedger

KEY = b"key"
OLD_AT, DELETED_AT, END = 7, 17, 25
WRITTEN_MS, DELETE_RETENTION_MS = 5_000, 1_000


def deleted() -> KeyedLedger:
    """A key with a value, then a tombstone; both were acknowledged."""
    ledger = KeyedLedger("t", TopicId(b"id"), 0, ACKS_ALL, delete_retention_ms=DELETE_RETENTION_MS)
    ledger.writing(KEY, b"old", 1_000)
    ledger.written(KEY, b"old", OLD_AT)
    ledger.writing(KEY, None, WRITTEN_MS)
    ledger.written(KEY, None, DELETED_AT)
    return ledger


def violations(ledger: KeyedLedger) -> list[str]:
    """What a reader finds wrong who finds the older value only."""
    ledger.found[OLD_AT] = (KEY, b"old")
    checks = Checks()
    ledger.judge(checks)
    return checks.violations


@pytest.mark.parametrize(
    ("ends", "may_be_back"),
    [
        ([(0, 0), (12, 4_000), (END, 6_000)], True),  # it lagged until the tombstone could be gone
        ([(0, 0), (12, 4_000), (END, 5_999)], False),  # it did not lag so long
        ([(0, 0), (7, 4_000), (END, 9_000)], False),  # it never had the older value before that
        ([(0, 0), (20, 5_100), (12, 5_200), (END, 6_000)], True),  # cut meanwhile
        ([(0, 0), (12, 4_000)], False),  # it never came so far
        ([(0, 0), (12, 4_000), (18, 5_500), (END, 9_000)], False),  # it has had the tombstone
    ],
)
def test_an_older_value_is_back_only_where_a_replica_lagged(
    ends: list[tuple[int, int]], may_be_back: bool
) -> None:
    ledger = deleted()
    for end, since_ms in ends:
        ledger.ends_at(1, end, since_ms)
    assert not violations(ledger) if may_be_back else violations(ledger)


def test_a_value_that_is_the_newest_is_never_gone() -> None:
    ledger = deleted()
    ledger.ends_at(1, 12, 4_000)
    ledger.ends_at(1, END, 9_000)
    ledger.writing(KEY, b"new", 8_000)
    ledger.written(KEY, b"new", 20)
    assert violations(ledger)
