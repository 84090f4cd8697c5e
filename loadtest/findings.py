"""Wrong answers, counted by kind and topic, with the first examples of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from raylog.client import TopicPartition
from raylog.loadtest.results import Finding

Kind: TypeAlias = Literal[
    "lost", "doubled", "reordered", "torn", "unknown", "wrong-offset", "aborted-seen"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
EXAMPLES_MAX = 10


class Findings:
    """Adds up wrong answers."""

    def __init__(self, found: Iterable[Finding] = ()) -> None:
        self._counts: dict[tuple[Kind, str], int] = {}
        self._examples: dict[tuple[Kind, str], list[str]] = {}
        self.merge(found)

    def add(self, kind: Kind, key: TopicPartition, text: str, count: int = 1) -> None:
        """Add `count` wrong answers of a kind in a partition. The text describes the first one."""
        example = f"{key}: {text}"
        self.merge([Finding(kind=kind, topic=key.topic, count=count, examples=[example])])

    def merge(self, others: Iterable[Finding]) -> None:
        """Add the findings of another process or time."""
        for other in others:
            key = (other.kind, other.topic)
            self._counts[key] = self._counts.get(key, 0) + other.count
            examples = self._examples.setdefault(key, [])
            examples += other.examples[: EXAMPLES_MAX - len(examples)]

    def take(self) -> list[Finding]:
        """The findings since the last call."""
        taken = self.result()
        self._counts, self._examples = {}, {}
        return taken

    def result(self) -> list[Finding]:
        """All findings, in the order of `KINDS`."""
        return _in_order(
            Finding(kind=kind, topic=topic, count=count, examples=self._examples[kind, topic])
            for (kind, topic), count in self._counts.items()
        )


def seen_by_both(audit: Iterable[Finding], users: Iterable[Finding]) -> list[Finding]:
    """By kind and topic, the larger count, since the audit and users usually see the same."""
    both: dict[tuple[Kind, str], Finding] = {}
    for one in (*audit, *users):
        other = both.get((one.kind, one.topic), one)
        examples = other.examples if other is one else [*other.examples, *one.examples]
        both[one.kind, one.topic] = Finding(
            kind=one.kind,
            topic=one.topic,
            count=max(one.count, other.count),
            examples=examples[:EXAMPLES_MAX],
        )
    return _in_order(both.values())


def _in_order(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: (KINDS.index(one.kind), one.topic))
