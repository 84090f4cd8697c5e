"""Checks of offsets: one value per offset, one offset per value, in the order of sending."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomalies import Anomaly, Kind, Options
from tests.checker.index import Index, Log
from tests.checker.operations import Outcome, Partition, Send


def check_offsets(index: Index, options: Options) -> Iterator[Anomaly]:
    """All findings about values and offsets of each partition."""
    for partition, log in index.logs.items():
        yield from _inconsistent(partition, log)
        yield from _duplicates(partition, log)
        yield from _phantoms(partition, log, index, options)
        yield from _sends_that_go_back(partition, log)
        if options.one_clock:
            yield from _appends_against_time(partition, log)


def name_of(partition: Partition) -> str:
    """A partition's name in messages."""
    return f"{partition[0]}-{partition[1]}"


def _inconsistent(partition: Partition, log: Log) -> Iterator[Anomaly]:
    for offset, others in log.other_values.items():
        values = (log.at[offset], *sorted(others))
        yield Anomaly(
            Kind.INCONSISTENT_OFFSET,
            f"offset {offset} of {name_of(partition)} holds {' and '.join(values)}",
            partition,
            values,
            (offset,),
        )


def _duplicates(partition: Partition, log: Log) -> Iterator[Anomaly]:
    for value, others in log.other_offsets.items():
        offsets = tuple(sorted({log.offset_of[value], *others}))
        places = " and ".join(map(str, offsets))
        yield Anomaly(
            Kind.DUPLICATE,
            f"{value} is in {name_of(partition)} at {places}",
            partition,
            (value,),
            offsets,
        )


def _phantoms(partition: Partition, log: Log, index: Index, options: Options) -> Iterator[Anomaly]:
    for value, offset in log.offset_of.items():
        send = index.writer.get(value)
        if send is None:
            if not options.all_sends_recorded:
                continue
            found = "which nobody sent"
        elif send.partition != partition:
            found = f"which was sent to {name_of(send.partition)}"
        else:
            continue
        yield Anomaly(
            Kind.PHANTOM,
            f"{name_of(partition)} has {value} at {offset}, {found}",
            partition,
            (value,),
            (offset,),
        )


def _sends_that_go_back(partition: Partition, log: Log) -> Iterator[Anomaly]:
    """Acknowledged offsets of a producer that do not increase in the order of its sends."""
    last: dict[str, Send] = {}
    for send in log.sends:
        if send.offset is None:
            continue
        before = last.get(send.process)
        if before is not None and before.offset is not None and send.offset <= before.offset:
            yield Anomaly(
                Kind.NONMONOTONIC_SEND,
                f"{send.process} sent {before.value} to {name_of(partition)} before {send.value}, "
                f"which stands before it: {send.offset} after {before.offset}",
                partition,
                (before.value, send.value),
                (before.offset, send.offset),
                (send.process,),
            )
        last[send.process] = send


def _appends_against_time(partition: Partition, log: Log) -> Iterator[Anomaly]:
    """Records before another one that was acknowledged before they were sent."""
    placed: list[tuple[int, Send]] = []
    for send in log.sends:
        offset = send.offset if send.offset is not None else log.offset_of.get(send.value)
        if offset is not None:
            placed.append((offset, send))
    placed.sort(key=lambda one: one[0])
    latest: Send | None = None
    latest_offset = -1
    for offset, send in placed:
        if (
            latest is not None
            and send.outcome is Outcome.OK
            and send.completed_ns < latest.invoked_ns
            and latest_offset < offset
        ):
            late_ns = latest.invoked_ns - send.completed_ns
            yield Anomaly(
                Kind.APPEND_AGAINST_TIME,
                f"{latest.value} of {latest.process} was sent {late_ns} ns after {send.value} of "
                f"{send.process} was acknowledged, and stands before it in "
                f"{name_of(partition)}: {latest_offset} before {offset}",
                partition,
                (send.value, latest.value),
                (offset, latest_offset),
                (send.process, latest.process),
            )
        if latest is None or send.invoked_ns > latest.invoked_ns:
            latest, latest_offset = send, offset
