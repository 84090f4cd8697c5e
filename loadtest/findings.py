"""Wrong answers, counted by kind, with the first examples of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from raylog.loadtest.results import Finding

Kind: TypeAlias = Literal[
    "lost", "doubled", "reordered", "torn", "unknown", "wrong-offset", "aborted-seen"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
EXAMPLES_MAX = 10


class Findings:
    """Adds up wrong answers."""

    def __init__(self, found: Iterable[Finding] = ()) -> None:
        self._counts: dict[Kind, int] = {}
        self._examples: dict[Kind, list[str]] = {}
        self.merge(found)

    def add(self, kind: Kind, example: str, count: int = 1) -> None:
        """Add `count` wrong answers of a kind. The example says where the first one was."""
        self._counts[kind] = self._counts.get(kind, 0) + count
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)

    def merge(self, others: Iterable[Finding]) -> None:
        """Add the findings of another process or time."""
        for other in others:
            self._counts[other.kind] = self._counts.get(other.kind, 0) + other.count
            examples = self._examples.setdefault(other.kind, [])
            examples += other.examples[: EXAMPLES_MAX - len(examples)]

    def count(self, kind: Kind) -> int:
        """The number of findings of a kind."""
        return self._counts.get(kind, 0)

    def take(self) -> list[Finding]:
        """The findings since the last call."""
        taken = self.result()
        self._counts, self._examples = {}, {}
        return taken

    def result(self) -> list[Finding]:
        """All findings, in the order of `KINDS`."""
        return [
            Finding(kind=kind, count=self._counts[kind], examples=self._examples[kind])
            for kind in KINDS
            if kind in self._counts
        ]


def seen_by_both(audit: Iterable[Finding], users: Iterable[Finding]) -> list[Finding]:
    """For each kind the larger count, since the audit and users usually see the same."""
    both: dict[Kind, Finding] = {}
    for one in (*audit, *users):
        other = both.get(one.kind)
        if other is None:
            both[one.kind] = one
            continue
        both[one.kind] = Finding(
            kind=one.kind,
            count=max(one.count, other.count),
            examples=[*other.examples, *one.examples][:EXAMPLES_MAX],
        )
    return [both[kind] for kind in KINDS if kind in both]
