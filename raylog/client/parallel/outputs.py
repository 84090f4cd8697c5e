"""What functions returned, until a transaction has committed it with the offsets."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.client.interceptors import ProducerRecord
from raylog.client.parallel.progress import Progress

_Some = tuple[Progress, tuple[ProducerRecord, ...]]


class KeptOutputs:
    """Outputs of finished records, in the order they were finished."""

    def __init__(self) -> None:
        self.bytes = 0
        """Of those that no transaction has taken."""
        self._kept: list[_Some] = []
        self._taken: list[_Some] | None = None

    def add(self, progress: Progress, outputs: tuple[ProducerRecord, ...]) -> None:
        """Keep what came of a partition's records."""
        self._kept.append((progress, outputs))
        self.bytes += _bytes_of(outputs)

    def take(self) -> list[ProducerRecord]:
        """All of them, for a transaction."""
        assert self._taken is None, "one transaction at a time"
        self._taken, self._kept, self.bytes = self._kept, [], 0
        return [one for _, some in self._taken for one in some]

    def ended(self, *, committed: bool) -> None:
        """The transaction ended; unless it committed, its outputs come first in the next one."""
        assert self._taken is not None, "a transaction was taken"
        taken, self._taken = self._taken, None
        if not committed:
            self._keep([one for one in taken if one[0].is_current] + self._kept)

    def let_go(self, progress: Progress) -> None:
        """Forget what came of a partition that was taken away."""
        self._keep([one for one in self._kept if one[0] is not progress])

    def _keep(self, kept: list[_Some]) -> None:
        self._kept = kept
        self.bytes = sum(_bytes_of(some) for _, some in kept)


def _bytes_of(outputs: Iterable[ProducerRecord]) -> int:
    return sum(
        len(part) for one in outputs for part in (one.key, one.value) if isinstance(part, bytes)
    )
