"""Failures of the disk are logged, but not for every writer that meets them."""

import pytest

from raylog.actors.replica.failures import INTERVAL_MS, StorageFailures


def test_one_line_in_a_while_says_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0.0
    failures = StorageFailures(lambda: now_ms)
    for at in range(4):
        failures.report(OSError(f"full {at}"))
    now_ms = INTERVAL_MS
    failures.report(OSError("full 4"))
    assert caplog.messages == [
        "full 0 (and 0 more since the last report)",
        "full 4 (and 3 more since the last report)",
    ]
