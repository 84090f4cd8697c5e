"""Compares the brokers' clocks with this machine's, for `raylog doctor`.

No request returns a broker's time, but two responses contain it. The description of the quorum has
the time at which the controller was last caught up with itself. Records in internal topics have
timestamps of the broker that wrote them. They may be old, so they only reveal clocks that are
ahead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raylog.cli.doctor.findings import Finding, ok, unknown, warning

if TYPE_CHECKING:
    from raylog.client import TopicPartition
    from raylog.client.core import Core

OFFSET_MAX_MS = 2_000.0
_INTERNAL = ("__consumer_offsets", "__transaction_state")
_DO = "synchronize the clocks of all machines (chrony, systemd-timesyncd)"


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """Differences in ms, positive if the other clock is ahead of this one."""

    controller: int | None = None
    """Broker id; None if unknown."""
    controller_ahead_ms: float = 0.0
    uncertain_ms: float = 0.0
    """Maximum error of `controller_ahead_ms`."""
    newest_ahead_ms: Mapping[int, float] = field(default_factory=dict)
    """Leader's id to how far its newest record in an internal topic is ahead of now."""


def check(facts: ClockFacts) -> list[Finding]:
    """Check whether the clocks agree well enough for timestamps and retention."""
    findings = []
    if facts.controller is not None:
        off, unsure = facts.controller_ahead_ms, facts.uncertain_ms
        who = f"the controller's (broker {facts.controller})"
        if abs(off) > OFFSET_MAX_MS + unsure:
            way = "ahead of" if off > 0 else "behind"
            findings.append(
                warning("clocks", f"{who} is {_seconds(abs(off))} {way} this machine's clock", _DO)
            )
        else:
            findings.append(
                ok(
                    "clocks",
                    f"{who} agrees with this machine's clock within {_seconds(abs(off) + unsure)}",
                )
            )
    ahead = {one: by for one, by in facts.newest_ahead_ms.items() if by > OFFSET_MAX_MS}
    findings += [
        warning(
            "clocks",
            f"broker {one} writes records with timestamps {_seconds(by)} ahead of this clock",
            _DO,
        )
        for one, by in sorted(ahead.items())
    ]
    return findings or [unknown("clocks", "no broker reports its time")]


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


async def gather(core: Core) -> ClockFacts:
    """Ask the brokers; what they do not report, or this client may not read, is left out."""
    controller, ahead_ms, uncertain_ms = await _controller(core)
    return ClockFacts(controller, ahead_ms, uncertain_ms, await _newest(core))


async def _controller(core: Core) -> tuple[int | None, float, float]:
    from raylog.client.admin.replicas import ReplicaAdmin
    from raylog.client.errors import ClientError
    from raylog.wire.errors import KafkaError

    admin = ReplicaAdmin(core)
    asked_ms = time.time() * 1_000
    try:
        quorum = await admin.describe_quorum()
    except (ClientError, KafkaError):
        return None, 0.0, 0.0
    now_ms = time.time() * 1_000
    caught_up_ms = [one.caught_up_ms for one in quorum.voters if one.broker_id == quorum.leader]
    if not caught_up_ms or caught_up_ms[0] <= 0:
        return None, 0.0, 0.0
    return quorum.leader, caught_up_ms[0] - (asked_ms + now_ms) / 2, (now_ms - asked_ms) / 2


async def _newest(core: Core) -> dict[int, float]:
    """Return how far the newest record in internal topics is ahead of now, by leader."""
    from raylog.client.cluster import TopicPartition
    from raylog.client.errors import ClientError
    from raylog.client.offsets import MAX_TIMESTAMP, find_offsets
    from raylog.wire.errors import KafkaError

    try:
        await core.refresh(_INTERNAL)
    except (ClientError, KafkaError):
        return {}
    leaders: dict[TopicPartition, int] = {
        TopicPartition(name, index): one.leader
        for name in _INTERNAL
        if name in core.cluster.topics
        for index, one in core.cluster.topics[name].partitions.items()
        if one.leader >= 0
    }
    found, _ = await find_offsets(core, dict.fromkeys(leaders, MAX_TIMESTAMP))
    now_ms = time.time() * 1_000
    ahead: dict[int, float] = {}
    for key, one in found.items():
        if one.timestamp_ms > 0:
            by = one.timestamp_ms - now_ms
            ahead[leaders[key]] = max(by, ahead.get(leaders[key], by))
    return ahead
