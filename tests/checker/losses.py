"""Checks what must be there at the end: lost writes, and writes that nobody looked for."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomalies import Anomaly, Kind
from tests.checker.index import Cover, Fate, Index, Log
from tests.checker.offsets import name_of
from tests.checker.operations import Outcome, Partition, Send


def check_losses(index: Index) -> Iterator[Anomaly]:
    """Writes that must be in the log and were not read from it."""
    for partition, log in index.logs.items():
        cover = index.covers.get(partition)
        for send in log.sends:
            if not _must_be_there(index, log, send):
                continue
            if cover is not None and send.value in cover.values:
                continue
            offset = send.offset if send.offset is not None else log.offset_of.get(send.value)
            if index.is_superseded(send, offset):
                continue
            if cover is not None and _was_due(cover, send, offset):
                yield _lost(partition, cover, send, offset)
            elif not log.was_polled(send.value) and not _is_removed(cover, offset):
                yield _unseen(partition, send)


def _must_be_there(index: Index, log: Log, send: Send) -> bool:
    """Whether a record is certainly visible in the log: acknowledged, or read before."""
    if send.outcome is not Outcome.OK and send.value not in log.values_committed:
        return False
    return index.fate_of(send) is Fate.COMMITTED and send.value not in index.never_written


def _was_due(cover: Cover, send: Send, offset: int | None) -> bool:
    """Whether the final read should have found a record."""
    in_time = send.outcome is Outcome.OK and send.completed_ns < cover.invoked_ns
    if offset is None:
        return in_time and cover.start == 0
    return cover.start <= offset and (offset < cover.end or in_time)


def _is_removed(cover: Cover | None, offset: int | None) -> bool:
    """Whether retention removed a record, or may have."""
    return cover is not None and cover.start > 0 and (offset is None or offset < cover.start)


def _lost(partition: Partition, cover: Cover, send: Send, offset: int | None) -> Anomaly:
    known = "acknowledged" if send.outcome is Outcome.OK else "read before"
    where = "without an offset" if offset is None else f"at {offset}"
    return Anomaly(
        Kind.LOST_WRITE,
        f"{send.value} of {send.process} was {known} {where} in {name_of(partition)}, "
        f"which was read from {cover.start} to its end {cover.end} without it",
        partition,
        (send.value,),
        () if offset is None else (offset,),
        (send.process,),
    )


def _unseen(partition: Partition, send: Send) -> Anomaly:
    return Anomaly(
        Kind.UNSEEN,
        f"{send.value} was acknowledged in {name_of(partition)} and never polled; nobody read "
        "that far",
        partition,
        (send.value,),
        () if send.offset is None else (send.offset,),
        (send.process,),
    )
