"""Mistakes about deleted or compacted records, planted like those of `planted`."""

from __future__ import annotations

from contextlib import ExitStack

from raylog.actors.gateway import topic_rules as rules
from raylog.storage.latest import LatestOffsets
from raylog.storage.log import Log
from raylog.storage.recovery import Recovery
from tests.sim.planting import Plant, plants_into, replace

RETENTION_PLANTS: dict[str, Plant] = {}


plant = plants_into(RETENTION_PLANTS)


@plant
def trusts_batch_max_timestamp(stack: ExitStack) -> None:
    """The client's timestamp in a batch's header counts as its age."""
    replace(stack, rules, "set_max_timestamp", lambda *_: None)


@plant
def compacts_the_newest_away(stack: ExitStack) -> None:
    """Compaction also removes the last record of a key."""

    def mistaken(latest: LatestOffsets, offset: int, key: bytes) -> bool:
        return offset <= latest._latest.get(key, -1)

    replace(stack, LatestOffsets, "is_overtaken", mistaken)


@plant
def keeps_producers_of_compacted_logs(stack: ExitStack) -> None:
    """Where records do not go by age, producers do not either."""
    retention = Log.retention

    def mistaken(log: Log, now_ms: int, high_watermark: int) -> list[str]:
        return retention(log, now_ms, high_watermark) if log.state.config.delete else []

    replace(stack, Log, "retention", mistaken)


@plant
def opens_a_log_at_its_first_segment(stack: ExitStack) -> None:
    """The stored log start is not read, so deleted records come back."""
    bounds = Recovery._bounds
    replace(stack, Recovery, "_bounds", lambda recovery, _: bounds(recovery, 0))


@plant
def tells_a_log_start_that_is_not_durable(stack: ExitStack) -> None:
    """A follower that is killed after DeleteRecords was answered brings records back."""
    replace(stack, Log, "durable_start_offset", property(lambda log: log.state.start_offset))
