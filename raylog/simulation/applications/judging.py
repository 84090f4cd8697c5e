"""Compares what the real clients did with the logs at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from raylog.actors.names import OFFSETS_TOPIC
from raylog.client.cluster import TopicPartition
from raylog.simulation.applications.copying import copied_from
from raylog.simulation.applications.history import ClientHistory, GroupHistory, Promise
from raylog.simulation.properties import Checks, Property
from raylog.simulation.transactions.history import StableLedger
from raylog.simulation.transactions.outcome import Outcome
from raylog.wire.internal.commits import decode_commit_key, decode_commit_value, is_commit_key

NEVER = 1 << 62


class Verdict:
    """Compares the clients' histories with the logs of all partitions."""

    def __init__(
        self,
        checks: Checks,
        ledgers: Mapping[TopicPartition, StableLedger],
        offsets: Sequence[StableLedger],
    ) -> None:
        """`offsets` are the ledgers of the partitions of `__consumer_offsets`."""
        self._hold = checks.hold
        self._values = {key: Outcome(one.batches).visible for key, one in ledgers.items()}
        self._commits = list(_commits(offsets))

    def judge(self, history: ClientHistory) -> None:
        """Check the whole history."""
        self._judge_written(history)
        for group in history.groups:
            self._judge_commits(group)
            match group.promise:
                case Promise.AT_LEAST_ONCE:
                    self._judge_at_least_once(group)
                case Promise.AT_MOST_ONCE:
                    self._judge_at_most_once(group)
                case Promise.EXACTLY_ONCE:
                    self._judge_exactly_once(group)

    # ---- producers -----------------------------------------------------------------------

    def _judge_written(self, history: ClientHistory) -> None:
        """Check that each producer's records are there at most once and in order."""
        places: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        for key, values in self._values.items():
            for offset, value in values.items():
                places.setdefault(value, []).append((key, offset))
        for label, written in history.written.items():
            found = [places.get(value, []) for value in written]
            twice = [value for value, at in zip(written, found, strict=True) if len(at) > 1]
            self._hold(Property.WRITTEN_ONCE, not twice, label, twice[:3])
            by_partition: dict[TopicPartition, list[int]] = {}
            for key, offset in (one for at in found for one in at):
                by_partition.setdefault(key, []).append(offset)
            for key, at in by_partition.items():
                wrong = [pair for pair in pairwise(at) if pair[0] > pair[1]]
                self._hold(Property.WRITTEN_IN_ORDER, not wrong, label, key, wrong[:3])

    # ---- groups --------------------------------------------------------------------------

    def _judge_commits(self, group: GroupHistory) -> None:
        """Check that a group's offsets in `__consumer_offsets` only increase."""
        last: dict[TopicPartition, int] = {}
        for group_id, key, offset in self._commits:
            if group_id == group.group_id:
                forward = offset >= last.get(key, 0)
                self._hold(Property.COMMITS_IN_ORDER, forward, group_id, key, last.get(key), offset)
                last[key] = offset

    def _read_by(self, group: GroupHistory) -> Iterator[tuple[TopicPartition, dict[int, bytes]]]:
        """The partitions that a group reads, each with its records."""
        for key, values in self._values.items():
            if key.topic == group.topic:
                yield key, values

    def _judge_at_least_once(self, group: GroupHistory) -> None:
        for key, values in self._read_by(group):
            processed = group.processed.get(key, {})
            missing = [offset for offset in values if offset not in processed]
            self._hold(Property.PROCESSED_ALL, not missing, group.group_id, key, missing[:5])
            first = [processed.get(at, [NEVER])[0] for at in range(max(values, default=-1) + 1)]
            until = [0, *accumulate(first, max)]
            for one in group.asked:
                if one.key == key and one.offset >= 0:
                    known = until[min(one.offset, len(until) - 1)]
                    done = known <= one.at
                    self._hold(Property.COMMITS_PROCESSED, done, group.group_id, one, known)

    def _judge_at_most_once(self, group: GroupHistory) -> None:
        for key, _ in self._read_by(group):
            processed = group.processed.get(key, {})
            twice = [offset for offset, times in processed.items() if len(times) > 1]
            self._hold(Property.PROCESSED_ONCE, not twice, group.group_id, key, twice[:5])

    def _judge_exactly_once(self, group: GroupHistory) -> None:
        """Check that everything was copied once and in order. The group has caught up."""
        copies: dict[int, list[int]] = {}
        for key, values in self._values.items():
            if key.topic == group.target:
                for _, value in sorted(values.items()):
                    if (copied := copied_from(value)) is not None:
                        copies.setdefault(copied[0], []).append(copied[1])
        for key, values in self._read_by(group):
            found = Counter(copies.get(key.partition, []))
            wanted = Counter(list(values))
            wrong = (found - wanted) | (wanted - found)
            self._hold(
                Property.OFFSETS_WITH_OUTPUT, not wrong, group.group_id, key, "wrong", dict(wrong)
            )
            at = copies.get(key.partition, [])
            ordered = all(one < other for one, other in pairwise(at))
            self._hold(Property.WRITTEN_IN_ORDER, ordered, group.group_id, key, "copies", at)


def _commits(offsets: Sequence[StableLedger]) -> Iterator[tuple[str, TopicPartition, int]]:
    """Group, partition and offset of every committed offset commit, in log order."""
    for ledger in offsets:
        assert ledger.topic == OFFSETS_TOPIC, "offsets are there and nowhere else"
        visible = Outcome(ledger.batches).visible
        for header, records in ledger.batches:
            for record in () if header.is_control else records:
                key, value = record.key, record.value
                if record.offset in visible and key and value and is_commit_key(key):
                    group_id, topic, partition = decode_commit_key(key)
                    yield group_id, TopicPartition(topic, partition), decode_commit_value(value)[0]
