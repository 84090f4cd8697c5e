"""Describes disks for `raylog status`: their free space, refused writes and failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raylog.cli.options import DEFAULT_DATA
from raylog.cli.output import human_bytes

if TYPE_CHECKING:
    from raylog.actors.broker.messages import BrokerStatus

_LOW = 100
"""A volume is nearly full if less than one part in this many is free."""
Row = dict[str, Any]


def disk_rows(brokers: list[BrokerStatus]) -> list[Row]:
    """Return a row for the disk of each broker that answers; older builds report less."""
    return [_disk_row(broker) for broker in brokers]


def _disk_row(broker: BrokerStatus) -> Row:
    troubles = [(one.offline, getattr(one, "trouble", "")) for one in broker.partitions]
    found = [(offline, why) for offline, why in troubles if offline or why]
    return {
        "broker": broker.broker_id,
        "directory": broker.directory,
        "total_bytes": getattr(broker, "total_bytes", -1),
        "usable_bytes": getattr(broker, "usable_bytes", -1),
        "partitions": len(broker.partitions),
        "refusing": sum(not offline for offline, _ in found),
        "offline": sum(offline for offline, _ in found),
        "trouble": next((why for _, why in found), ""),
        "vote_trouble": getattr(broker, "vote_trouble", ""),
    }


def disk_lines(rows: list[Row], data: Path) -> Iterator[str]:
    """Yield what is wrong with disks, and what to do about it."""
    where = "" if data == DEFAULT_DATA else f" --data {data}"
    for row in rows:
        broker, count = row["broker"], row["partitions"]
        restart = f"raylog brokers restart {broker}{where}"
        if row["refusing"]:
            yield (
                f"Broker {broker}: its disk refused the newest write to {row['refusing']:,} of "
                f"{count:,} partitions ({row['trouble']}). {_room(row)}. Free space on it, or "
                "shorten the retention of topics; writes then continue automatically"
            )
        elif 0 <= row["usable_bytes"] * _LOW < row["total_bytes"]:
            yield f"Broker {broker}: its disk is nearly full. {_room(row)}. Free space on it"
        if row["offline"]:
            yield (
                f"Broker {broker}: its disk failed, and {row['offline']:,} of {count:,} "
                f"partitions are offline ({row['trouble']}). When the disk works again: {restart}"
            )
        if row["vote_trouble"]:
            yield (
                f"Broker {broker} no longer votes on the metadata: {row['vote_trouble']}. When "
                f"its disk accepts writes again: {restart}"
            )


def _room(row: Row) -> str:
    if row["total_bytes"] < 0:
        return f"The free space on the volume of {row['directory']} is not known"
    free, total = human_bytes(row["usable_bytes"]), human_bytes(row["total_bytes"])
    return f"{free} of {total} are free on the volume of {row['directory']}"
