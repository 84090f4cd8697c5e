"""Checks transactions, using only the logs and what clients were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.replica.partition import Partition
from raylog.simulation.properties import Checks, Property
from raylog.simulation.transactions.copying import copied_from
from raylog.simulation.transactions.history import History, Sent, StableLedger
from raylog.simulation.transactions.outcome import Outcome
from raylog.wire.internal.commits import decode_commit_key, decode_commit_value, is_commit_key


class Verdict:
    """Compares the log of every partition with what was known about it."""

    def __init__(self, checks: Checks, ledgers: Sequence[StableLedger]) -> None:
        self._hold = checks.hold
        self._ledgers = {ledger.name: ledger for ledger in ledgers}
        self.outcomes = {name: Outcome(one.batches) for name, one in self._ledgers.items()}

    # ---- one partition -------------------------------------------------------------------

    def judge_logs(self) -> None:
        """Check each partition by itself: what readers got, and its markers."""
        for name, outcome in self.outcomes.items():
            ledger = self._ledgers[name]
            self._judge_reads(ledger, outcome)
            for high_watermark, stable in ledger.stable.items():
                logged = outcome.last_stable_offset(high_watermark)
                self._hold(
                    Property.STABLE_AS_LOGGED,
                    stable == logged,
                    name,
                    high_watermark,
                    stable,
                    logged,
                )
            self._judge_markers(name, outcome)

    def _judge_reads(self, ledger: StableLedger, outcome: Outcome) -> None:
        shown = {at: value for at, value in outcome.visible.items() if at < ledger.passed}
        for offset, value in ledger.committed.items():
            kind = Property.ABORTED_HIDDEN
            hidden = offset not in outcome.aborted
            self._hold(kind, hidden, ledger.name, offset, value)
        wrong = next(iter(shown.items() ^ ledger.committed.items()), None)
        self._hold(Property.READS_COMPLETE, wrong is None, ledger.name, wrong)

    def _judge_markers(self, name: str, outcome: Outcome) -> None:
        last: dict[int, tuple[int, int]] = {}
        for marker in outcome.markers:
            before = last.get(marker.producer_id, (-1, -1))
            now = (marker.producer_epoch, marker.coordinator_epoch)
            forward = now[0] >= before[0] and now[1] >= before[1]
            self._hold(Property.MARKERS_FORWARD, forward, name, marker, before)
            last[marker.producer_id] = now

    def judge_replica(self, partition: Partition) -> None:
        """Check an in-sync replica's view of its log."""
        outcome = self.outcomes.get(partition.name)
        if outcome is None:
            return
        high_watermark = partition.high_watermark
        known = [
            (one.producer_id, one.first_offset, one.last_offset)
            for one in partition.log.reader.aborted_transactions(0, high_watermark)
        ]
        logged = [one for one in outcome.aborted_spans() if one[1] < high_watermark]
        self._hold(
            Property.ABORTS_INDEXED, sorted(known) == sorted(logged), partition.name, known, logged
        )
        stable = partition.last_stable_offset
        self._hold(
            Property.STABLE_AS_LOGGED,
            stable == outcome.last_stable_offset(high_watermark),
            partition.name,
            "of a replica",
            high_watermark,
            stable,
        )

    # ---- all partitions ------------------------------------------------------------------

    def judge_transactions(self, history: History) -> None:
        """Check that every transaction is complete or absent, and ended as its client was told."""
        visible = Counter(self._values())
        for sent in history.sent:
            self._judge_transaction(sent, visible)
        self._judge_parts(history)

    def _judge_transaction(self, sent: Sent, visible: Counter[bytes]) -> None:
        values = [value for found in sent.values.values() for value in found]
        counts = [visible[value] for value in values]
        details = (sent.label, sent.outcome, dict(zip(values, counts, strict=True)))
        whole = all(count == 1 for count in counts)
        absent = not any(counts)
        self._hold(Property.NOT_TORN, whole or absent, *details)
        if sent.outcome:
            self._hold(Property.COMMITTED_VISIBLE, whole, *details)
        if sent.outcome is False or not sent.asked_to_commit:
            self._hold(Property.ABORTED_HIDDEN, absent, *details)

    def _judge_parts(self, history: History) -> None:
        """Check that in each partition a marker ends one transaction, and all of it there."""
        whose = {
            value: sent.label
            for sent in history.sent
            for values in sent.values.values()
            for value in values
        }
        for name, outcome in self.outcomes.items():
            if name.startswith(OFFSETS_TOPIC):
                continue
            parts = [{whose[value] for value in found} for found in outcome.values_together()]
            alone = all(len(labels) == 1 for labels in parts)
            ends = Counter(label for labels in parts for label in labels)
            twice = [label for label, count in ends.items() if count > 1]
            self._hold(Property.NOT_TORN, alone and not twice, name, "ended twice", twice)

    def judge_group(self, group: str, source: str, committed: int) -> None:
        """Check that a group has copied exactly the records that it has passed, once each.

        `committed` is its offset in the partition `source`, by OffsetFetch.
        """
        logged = max(0, self._logged_offset(group, source))
        self._hold(Property.OFFSETS_AS_LOGGED, committed == logged, group, committed, logged)
        passed = Counter(at for at in self.outcomes[source].visible if at < committed)
        copied = Counter(
            copy[1]
            for value in self._values()
            if (copy := copied_from(value)) is not None and copy[0] == group
        )
        wrong: Mapping[int, int] = (passed - copied) | (copied - passed)
        self._hold(
            Property.OFFSETS_WITH_OUTPUT, not wrong, group, "passed", committed, "wrong", wrong
        )

    def _values(self) -> Iterator[bytes]:
        """The values of all visible records, without the offsets of groups."""
        for name, outcome in self.outcomes.items():
            if not name.startswith(OFFSETS_TOPIC):
                yield from outcome.visible.values()

    def _logged_offset(self, group: str, source: str) -> int:
        """The group's offset in the log of `__consumer_offsets`; -1 if nothing is stored."""
        found = [
            (at, decode_commit_value(value)[0])
            for name, outcome in self.outcomes.items()
            if name.startswith(OFFSETS_TOPIC)
            for key, (at, value) in outcome.latest.items()
            if value is not None and is_commit_key(key) and _names(key, group, source)
        ]
        return max(found, default=(0, -1))[1]


def _names(key: bytes, group: str, source: str) -> bool:
    group_id, topic, partition = decode_commit_key(key)
    return group_id == group and f"{topic}-{partition}" == source
