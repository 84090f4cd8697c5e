"""Names of openings of logs: by the process that has it, its broker's process, a number."""

from __future__ import annotations


def name_of(instance: str, broker_incarnation: str, number: int) -> str:
    """The name of a broker process' opening with that number, in the process `instance`."""
    return f"{instance}@{broker_incarnation}.{number}"


def is_earlier(one: str, other: str) -> bool:
    """Whether the same broker process made one opening before the other.

    Those of different processes cannot be compared: their broker epochs tell.
    """
    broker, number = _parts(one)
    other_broker, other_number = _parts(other)
    return broker == other_broker != "" and number < other_number


def _parts(name: str) -> tuple[str, int]:
    """Broker process and number; of a name that has none, an empty one."""
    broker, _, number = name.rpartition("@")[2].rpartition(".")
    return (broker, int(number)) if number.isdecimal() else ("", 0)
