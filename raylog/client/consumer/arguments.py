"""Checks of the arguments of polls, seeks and commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsIndex

from raylog.client.cluster import CommittedOffset, TopicPartition, require_partitions
from raylog.client.errors import InvalidSetting
from raylog.client.offsets import EARLIEST

_OFFSET_MAX = 2**63 - 1


def require_timeout(timeout_ms: object) -> None:
    """Raise InvalidSetting unless it is a valid timeout; zero and negative ones are."""
    if not isinstance(timeout_ms, int | float) or timeout_ms != timeout_ms:
        raise InvalidSetting(f"expected timeout_ms to be a number of ms, found {timeout_ms!r}")


def require_limits(**limits: object) -> None:
    """Raise InvalidSetting unless each limit is a number of 1 or more."""
    for name, limit in limits.items():
        if not isinstance(limit, int) or limit < 1:
            raise InvalidSetting(f"expected {name} to be a number of 1 or more, found {limit!r}")


def require_starts(starts: Mapping[TopicPartition, int]) -> None:
    """Raise InvalidSetting unless each start is an offset, EARLIEST or LATEST."""
    for key, start in starts.items():
        if not isinstance(start, SupportsIndex) or not EARLIEST <= start <= _OFFSET_MAX:
            raise InvalidSetting(
                f"{key}: expected EARLIEST, LATEST or an offset from 0 to 2**63 - 1, "
                f"found {start!r}"
            )


def as_committed(
    offsets: Mapping[TopicPartition, CommittedOffset | int],
) -> dict[TopicPartition, CommittedOffset]:
    """Convert plain offsets to CommittedOffset; raise ValueError for an invalid offset."""
    found = {
        key: CommittedOffset(offset) if isinstance(offset, int) else offset
        for key, offset in offsets.items()
    }
    require_partitions(found)
    for key, one in found.items():
        if not 0 <= one.offset <= _OFFSET_MAX:
            raise ValueError(f"{key}: expected an offset from 0 to 2**63 - 1, found {one.offset}")
    return found
