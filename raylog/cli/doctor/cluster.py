"""Checks any Kafka cluster through its brokers, for `raylog doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from raylog.cli.doctor import addresses, clocks
from raylog.cli.doctor.addresses import Advertised
from raylog.cli.doctor.findings import Finding, Status, failure, ok, unknown, warning
from raylog.cli.top.machine import Watch, names
from raylog.cli.top.reader import Reader, min_isr_of, now_ms
from raylog.cli.top.troubles import Severity, Trouble, troubles
from raylog.client.errors import ClientError
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.cli.top.machine import Known
    from raylog.client import ClientSettings
    from raylog.client.core import Core

_STATUS = {
    Severity.CRITICAL: Status.FAILURE,
    Severity.SERIOUS: Status.FAILURE,
    Severity.WARNING: Status.WARNING,
    Severity.NOTE: Status.UNKNOWN,
}
_NAMES_MAX = 4


async def findings(settings: ClientSettings, where: str) -> list[Finding]:
    """Check a cluster through its brokers; `where` is the option with which commands reach it."""
    asked = await addresses.reach_all(settings, settings.bootstrap)
    found = addresses.check_bootstrap(asked)
    first = next((one for one in asked if not one.kind), None)
    if first is None:
        return found
    ids = [broker for broker, _ in first.brokers]
    reached = await addresses.reach_all(settings, [address for _, address in first.brokers])
    advertised = [Advertised(*pair) for pair in zip(ids, reached, strict=True)]
    found += addresses.check_advertised(asked, advertised)
    found += addresses.check_versions(advertised)
    watch = Watch(where)
    reader = Reader(settings, watch.handle, now=True)
    try:
        await reader.look()
        found += clocks.check(await clocks.gather(reader.core))
        min_isr = await _min_isr(reader.core, {key.topic for key in watch.known.partitions})
    finally:
        await reader.close()
    return [*found, *check_health(watch.known), check_min_isr(watch.known, min_isr, where)]


async def _min_isr(core: Core, topics: Iterable[str]) -> dict[str, int]:
    """Return `min.insync.replicas` by topic; empty if the brokers do not report it."""
    try:
        return await min_isr_of(core, sorted(topics))
    except (ClientError, KafkaError):
        return {}


def check_health(known: Known) -> list[Finding]:
    """Return the problems that `raylog top` would show now."""
    found = [_finding(one) for one in troubles(known, now_ms())]
    if any(one.status is not Status.UNKNOWN for one in found):
        return found
    count = len(known.partitions)
    return [
        *found,
        ok("health", f"{count:,} partitions, all in sync; no problems found"),
    ]


def _finding(one: Trouble) -> Finding:
    return Finding(one.kind, _STATUS[one.severity], one.what, f"{one.do} ({one.see})")


def check_min_isr(known: Known, min_isr: Mapping[str, int], where: str) -> Finding:
    """Check whether acks=all can succeed at all, and with one replica less."""
    name = "min.insync.replicas"
    if known.partitions and not min_isr:
        return unknown(name, "the brokers do not report it")
    never = _where_replicas(known, min_isr, 1)
    if never:
        return failure(
            name,
            f"above the number of replicas, so acks=all always fails: {never}",
            f"raylog topics reassign -t TOPIC -r 3{where}, or lower min.insync.replicas",
        )
    tight = _where_replicas(known, min_isr, 0)
    if tight:
        return warning(
            name,
            "equal to the number of replicas, so acks=all fails whenever a broker is down: "
            f"{tight}",
            f"raylog topics reassign -t TOPIC -r 3{where}, or lower min.insync.replicas",
        )
    return ok(
        name, "acks=all succeeds in all topics, also without one replica if there are two or more"
    )


def _where_replicas(known: Known, min_isr: Mapping[str, int], missing: int) -> str:
    """Name partitions with min.insync.replicas > 1 that have at least `missing` fewer replicas."""
    keys = [
        key
        for key, one in known.partitions.items()
        if min_isr.get(key.topic, 0) - len(one.replicas) >= missing
        and min_isr.get(key.topic, 0) > 1
    ]
    return names(keys, _NAMES_MAX) if keys else ""


def where_of(bootstrap: Sequence[str]) -> str:
    """Return the option with which commands reach a cluster."""
    return f" -b {','.join(bootstrap)}" if bootstrap else ""
