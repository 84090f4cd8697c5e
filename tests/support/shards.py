"""One shard of the group coordinator without log, links or clock.

Records and answers go through their bytes: what cannot be written fails the test that caused it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from raylog.actors.coordination import records
from raylog.actors.coordination.step import Asked, Change, LogRecord, Step, TimerKey
from raylog.actors.group.api import ListGroupsPart
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.shard import Shard
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import PartitionCreated, Record, TopicCreated, TopicDeleted
from raylog.actors.ports import TopicId
from raylog.wire.codec import decode, encode
from raylog.wire.internal.blobs import OFFSETS_TOPIC
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.steps import commit, set_timers

START_MS = 1_700_000_000_000


def id_of(topic: str, number: int = 1) -> TopicId:
    """The id that worlds give a topic, the first of its name or a later one."""
    return TopicId(topic.encode().rjust(16, bytes([number])))


def topic_records(
    name: str, partitions: int = 1, *, leader: int = 1, number: int = 1
) -> list[Record]:
    """What makes a topic."""
    topic_id = id_of(name, number)
    return [
        TopicCreated(topic_id, name),
        *(PartitionCreated(topic_id, i, (1,), (1,), leader) for i in range(partitions)),
    ]


def forget(shard: Shard, step: Step, deleted: set[str]) -> None:
    """Tell a shard that topics were deleted, as its host does."""
    shard.topics_changed(step, deleted, shard.groups)
    shard.forget_gone(step, shard.walk(deleted))


@dataclass(slots=True)
class ShardWorld:
    """A shard, what it has appended, and a clock that the test moves.

    Of records in transactions the log does not know: there is no crash with them.
    """

    settings: GroupSettings = field(default_factory=GroupSettings)
    image: MetadataImage = field(default_factory=MetadataImage)
    log: list[LogRecord] = field(default_factory=list)
    now_ms: int = START_MS
    answers: dict[int, tuple[Any, bool]] = field(default_factory=dict)
    """Response and whether it is durable, by token."""
    timers: dict[tuple[str, TimerKey], float] = field(default_factory=dict)
    shard: Shard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = Shard(self.settings, Assigning())

    def topics(self, **partitions: int) -> None:
        """Create topics."""
        for name, count in partitions.items():
            self.image.apply_all(topic_records(name, count))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and tell the shard."""
        self.image.apply(TopicDeleted(id_of(name)))
        self.run(lambda step: forget(self.shard, step, {name}))

    def run(
        self,
        event: Callable[[Step], object],
        replay: Callable[[LogRecord], Change] | None = None,
    ) -> Step:
        """One step and its records."""
        takes_in = self.shard.replay if replay is None else replay
        step = Step(self.now_ms, float(self.now_ms), self.image, Random(7), takes_in)
        event(step)
        self.log.extend(step.records)
        for answer in step.answers:
            assert answer.token not in self.answers, "answered twice"
            self.answers[answer.token] = (answer.response, answer.durable)
        set_timers(self.timers, step.timers)
        commit(step)
        return step

    def expire(self) -> None:
        """Look for expired offsets."""
        self.run(lambda step: self.shard.expire(step, list(self.shard.walk())))

    def fire(self) -> None:
        """Run the timers that are due."""
        while due := [name for name, at_ms in self.timers.items() if at_ms <= self.now_ms]:
            del self.timers[due[0]]
            self.run(partial(self._fire, *due[0]))

    def _fire(self, group_id: str, key: TimerKey, step: Step) -> None:
        self.shard.timer(step, group_id, key)

    def ask(self, request: Any, version: int) -> Any:
        """A request that is answered at once."""
        token = len(self.answers) + 1
        taken = _through_bytes(request, version)
        if isinstance(taken, ListGroupsRequest):
            taken = ListGroupsPart(taken, self.shard.group_ids())
        asked = Asked(token, taken, version, "c", "/127.0.0.1")
        in_transaction = isinstance(request, TxnOffsetCommitRequest)
        replay = self.shard.replay_in(request) if in_transaction else None
        self.run(lambda step: self.shard.handle(step, asked), replay)
        self.fire()
        return _through_bytes(self.answers[token][0], version)

    @property
    def durable(self) -> bool:
        """Whether the last answer waits for the log."""
        return self.answers[len(self.answers)][1]

    def crash(self) -> None:
        """Lose all but the log's bytes, and load them."""
        self.shard = Shard(self.settings, Assigning())
        self.timers.clear()
        for record in self.log:
            found = records.decode(OFFSETS_TOPIC, *records.encode(record))
            assert found is not None
            self.shard.replay(found).commit()
        self.run(self.shard.loaded)
        self.run(lambda step: self.shard.forget_gone(step, self.shard.walk()))


def _through_bytes(message: Any, version: int) -> Any:
    return decode(type(message), version, encode(message, version))
