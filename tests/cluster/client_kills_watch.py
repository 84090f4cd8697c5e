"""Polls the groups' committed offsets while `client_kills` runs, and reads topics at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from raylog.client import (
    LATEST,
    Admin,
    ClientError,
    CommittedOffset,
    Consumer,
    TopicPartition,
)
from raylog.client.parallel.note import decode_note
from raylog.wire.errors import KafkaError
from tests.checker.promises import Seen
from tests.cluster.client_kills_client import POLL_MS, Role
from tests.cluster.client_kills_teams import Team
from tests.copying.ends import SinkReader
from tests.support.ray_clusters import wait_until
from tests.support.working import Working

EVERY_S = 0.5
ASKS_MS = 5_000
READ_S = 120.0

Records = list[tuple[int, int, str]]
"""Partition, offset and value, by partition in the order of offsets."""


class Watch(Working):
    """Polls the committed offsets of all groups, and the end offsets of the topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, groups: Sequence[Team]) -> None:
        super().__init__()
        self.seen: dict[str, list[Seen]] = {team.name: [] for team in groups}
        """By group, in the order of time."""
        self.ends: dict[int, int] = {}
        self.rounds = self.unanswered = 0
        self._keys = [TopicPartition(topic, index) for index in range(partitions)]
        self._has_notes = {team.name: team.role is Role.PARALLEL for team in groups}
        self._committed: dict[str, dict[int, int]] = {team.name: {} for team in groups}
        self._client = Admin(bootstrap, default_api_timeout_ms=ASKS_MS)

    def work(self) -> None:
        """Until `ending`."""
        while not self.ending.wait(EVERY_S):
            self.rounds += 1
            for group in self.seen:
                try:
                    self._note(group, self._client.group_offsets(group, self._keys))
                except (ClientError, KafkaError):
                    self.unanswered += 1  # its coordinator is away
            with suppress(ClientError, KafkaError):
                found = self._client.list_offsets(dict.fromkeys(self._keys, LATEST))
                self.ends = {key.partition: one.offset for key, one in found.items()}
        self._client.close()

    def _note(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        at_ns = time.monotonic_ns()
        for key, one in offsets.items():
            has_notes = self._has_notes[group]
            noted = decode_note(key, one.offset, one.metadata) if has_notes else []
            self.seen[group].append(Seen(at_ns, key.partition, one.offset, noted))
            self._committed[group][key.partition] = one.offset

    def lag(self, group: str) -> int:
        """Records that a group has not committed yet, as far as known."""
        committed = self._committed[group]
        return sum(end - committed.get(index, 0) for index, end in dict(self.ends).items())

    @property
    def written(self) -> int:
        """Records of the topic."""
        return sum(dict(self.ends).values())


@dataclass(slots=True)
class _Taken:
    records: Records = field(default_factory=list)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        self.records.append((partition, offset, value.decode()))


def read_with_librdkafka(bootstrap: str, topic: str, partitions: int) -> Records:
    """All committed records of a topic."""
    with SinkReader(bootstrap, topic, partitions, _Taken()) as reader:
        wait_until(
            lambda: reader.failures or len(reader.ended) == partitions, f"{topic}'s end", READ_S
        )
    assert not reader.failures, reader.failures
    return sorted(reader.judge.records, key=lambda one: one[:2])


def read_with_our_client(bootstrap: str, topic: str, partitions: int) -> Records:
    """The same with the client under test."""
    found: Records = []
    keys = [TopicPartition(topic, index) for index in range(partitions)]
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(dict.fromkeys(keys, 0))
        ends = consumer.end_offsets(keys)
        deadline = time.monotonic() + READ_S
        while any(consumer.position(key) < ends[key] for key in keys):
            assert time.monotonic() < deadline, f"{topic} is not read to its end"
            for record in consumer.poll_records(POLL_MS):
                assert record.value is not None
                found.append((record.partition, record.offset, record.value.decode()))
    return sorted(found, key=lambda one: one[:2])
