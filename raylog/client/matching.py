"""Checks that an answer covers exactly what was asked: each item once, and nothing else.

A broker that omits an item, repeats one or adds one breaks the protocol. That raises NotKafka and
is never a silent success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from raylog.client.errors import NotKafka

A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
Name = Callable[[K], str]
"""Formats an item for error messages."""


def named(kind: str) -> Callable[[object], str]:
    """Return a function that formats items of one kind, as in: topic 'orders'."""
    return lambda key: f"{kind} {key!r}"


def distinct_answers(answers: Iterable[tuple[K, R]], name: Name[K] = str) -> dict[K, R]:
    """Return answers by item, about any items; raises NotKafka for a repeated item."""
    found: dict[K, R] = {}
    for key, answer in answers:
        if key in found:
            raise NotKafka(f"expected one answer about {name(key)}, found two")
        found[key] = answer
    return found


def answers_among(
    asked: Iterable[K] | None, answers: Iterable[tuple[K, R]], name: Name[K] = str
) -> dict[K, R]:
    """Return answers about some of the items (None: about any); raises NotKafka for any other."""
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
    """Return one answer per item, in the order asked; raises NotKafka unless they match."""
    expected = list(asked)
    found = answers_among(expected, answers, name)
    for key in expected:
        if key not in found:
            raise NotKafka(f"expected an answer about {name(key)}, found none")
    return {key: found[key] for key in expected}


def answers_in_order(asked: Sequence[A], answers: Sequence[R]) -> Iterable[tuple[A, R]]:
    """Pair each item with its answer, if only its position tells which item an answer is about."""
    if len(asked) != len(answers):
        raise NotKafka(f"expected {len(asked)} answers, found {len(answers)}")
    return zip(asked, answers, strict=True)
