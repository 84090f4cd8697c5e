"""Mistakes about records that are deleted or compacted, planted as those of `planted` are."""

from __future__ import annotations

from contextlib import ExitStack

from raylog.actors.gateway import rules
from raylog.storage.latest import LatestOffsets
from raylog.storage.maintained import MaintainedLog
from raylog.storage.recovery import Recovery
from tests.sim.planting import Plant, replace

RETENTION_PLANTS: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    """Name a mistake by its function."""
    RETENTION_PLANTS[function.__name__] = function
    return function


@plant
def believes_the_largest_timestamp(stack: ExitStack) -> None:
    """What a client says in a batch's header is its age."""
    replace(stack, rules, "set_max_timestamp", lambda *_: None)


@plant
def compacts_the_newest_away(stack: ExitStack) -> None:
    """Of a key its last record goes as well."""

    def mistaken(latest: LatestOffsets, offset: int, key: bytes) -> bool:
        return offset <= latest._latest.get(key, -1)

    replace(stack, LatestOffsets, "is_overtaken", mistaken)


@plant
def keeps_producers_of_compacted_logs(stack: ExitStack) -> None:
    """Where records do not go by age, producers do not either."""
    retention = MaintainedLog.retention

    def mistaken(log: MaintainedLog, now_ms: int, high_watermark: int) -> list[str]:
        return retention(log, now_ms, high_watermark) if log.config.delete else []

    replace(stack, MaintainedLog, "retention", mistaken)


@plant
def opens_a_log_at_its_first_segment(stack: ExitStack) -> None:
    """The log start that was stored is not read: deleted records come back."""
    bounds = Recovery._bounds
    replace(stack, Recovery, "_bounds", lambda recovery, _: bounds(recovery, 0))


@plant
def tells_a_log_start_that_is_not_durable(stack: ExitStack) -> None:
    """A follower that is killed after DeleteRecords was answered brings records back."""
    replace(stack, MaintainedLog, "durable_start_offset", property(lambda log: log._start))
