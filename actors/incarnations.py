"""Incarnations of replicas' logs: names made of the process, its broker's process and a number."""

from __future__ import annotations


def name_of(instance: str, broker_incarnation: str, number: int) -> str:
    """Return the name of the incarnation `number` of a broker process, in `instance`."""
    return f"{instance}@{broker_incarnation}.{number}"


def is_earlier(one: str, other: str) -> bool:
    """Whether the same broker process made one incarnation before the other.

    Those of different broker processes cannot be compared; their broker epochs decide.
    """
    broker, number = _parts(one)
    other_broker, other_number = _parts(other)
    return broker == other_broker != "" and number < other_number


def _parts(name: str) -> tuple[str, int]:
    """Return the broker process and the number in a name, or ("", 0) if it has none."""
    broker, _, number = name.rpartition("@")[2].rpartition(".")
    return (broker, int(number)) if number.isdecimal() else ("", 0)
