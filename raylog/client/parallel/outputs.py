"""Outputs that wait for a transaction to commit them with the offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.policy import Failure
from raylog.client.parallel.progress import Progress
from raylog.client.parallel.routes import Attempts
from raylog.wire.record import Record


@dataclass(slots=True)
class Kept:
    """The outputs of some records of a partition."""

    progress: Progress
    outputs: tuple[ProducerRecord, ...]
    records: tuple[Record, ...]
    """The records that these results come from; empty for letters."""
    attempts: Attempts


class KeptOutputs:
    """Outputs of finished records, in the order in which they finished."""

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes of outputs that no transaction has taken."""
        self._kept: list[Kept] = []
        self._taken: list[Kept] | None = None

    def add(self, kept: Kept) -> None:
        """Add the outputs of some records."""
        self._kept.append(kept)
        self.bytes += _bytes_of(kept.outputs)

    def take(self) -> list[ProducerRecord]:
        """Take all outputs for a transaction."""
        assert self._taken is None, "one transaction at a time"
        self._taken, self._kept, self.bytes = self._kept, [], 0
        return [one for some in self._taken for one in some.outputs]

    def refused(self, failures: Mapping[int, Failure]) -> list[tuple[Kept, Failure]]:
        """Return the taken results that contain a refused position, each with one failure."""
        assert self._taken is not None, "a transaction was taken"
        found = []
        end = 0
        for some in self._taken:
            begin, end = end, end + len(some.outputs)
            reason = next((failures[at] for at in range(begin, end) if at in failures), None)
            if reason is not None and some.records and some.progress.is_current:
                found.append((some, reason))
        return found

    def ended(self, *, committed: bool) -> None:
        """End the transaction; unless it committed, the next one starts with its outputs."""
        assert self._taken is not None, "a transaction was taken"
        taken, self._taken = self._taken, None
        if not committed:
            self._keep([one for one in taken if one.progress.is_current] + self._kept)

    def let_go(self, progress: Progress) -> None:
        """Drop the outputs of a revoked partition."""
        self._keep([one for one in self._kept if one.progress is not progress])

    def _keep(self, kept: list[Kept]) -> None:
        self._kept = kept
        self.bytes = sum(_bytes_of(some.outputs) for some in kept)


def _bytes_of(outputs: Iterable[ProducerRecord]) -> int:
    return sum(
        len(part) for one in outputs for part in (one.key, one.value) if isinstance(part, bytes)
    )
