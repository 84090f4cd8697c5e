"""Checking that an answer is about what was asked: each item once, and nothing else.

A broker that leaves an item out, names one twice or names another one breaks the protocol: that is
NotKafka, never a silent success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from raylog.client.errors import NotKafka

A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
Name = Callable[[K], str]
"""How messages call an item."""


def named(kind: str) -> Callable[[object], str]:
    """Items of one kind by their names: topic 'orders'."""
    return lambda key: f"{kind} {key!r}"


def distinct_answers(answers: Iterable[tuple[K, R]], name: Name[K] = str) -> dict[K, R]:
    """Answers by item, where any item may be answered; raises NotKafka for one named twice."""
    found: dict[K, R] = {}
    for key, answer in answers:
        if key in found:
            raise NotKafka(f"expected one answer about {name(key)}, found two")
        found[key] = answer
    return found


def answers_among(
    asked: Iterable[K] | None, answers: Iterable[tuple[K, R]], name: Name[K] = str
) -> dict[K, R]:
    """Answers about some of the items asked for (None: any); raises NotKafka for another item."""
    found = distinct_answers(answers, name)
    if asked is not None:
        expected = set(asked)
        for key in found:
            if key not in expected:
                raise NotKafka(f"expected no answer about {name(key)}, found one")
    return found


def answers_to(
    asked: Iterable[K], answers: Iterable[tuple[K, R]], name: Name[K] = str
) -> dict[K, R]:
    """One answer for each item, in the order asked; raises NotKafka unless they match."""
    expected = list(asked)
    found = answers_among(expected, answers, name)
    for key in expected:
        if key not in found:
            raise NotKafka(f"expected an answer about {name(key)}, found none")
    return {key: found[key] for key in expected}


def answers_in_order(asked: Sequence[A], answers: Sequence[R]) -> Iterable[tuple[A, R]]:
    """Each item with its answer, where an answer's position alone says what it is about."""
    if len(asked) != len(answers):
        raise NotKafka(f"expected {len(asked)} answers, found {len(answers)}")
    return zip(asked, answers, strict=True)
