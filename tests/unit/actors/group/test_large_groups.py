"""Large members and offsets do not hold the event loop: they are read in threads or in turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group import hosting
from raylog.actors.group.hosting import SWEPT_AT_ONCE, ShardHost
from raylog.actors.group.rules.classic import subscriptions
from raylog.actors.group.rules.consumer import ConsumerGroup
from raylog.actors.group.rules.shard import Shard
from raylog.actors.group.rules.sweeping import PART
from raylog.actors.metadata.records import PartitionCreated, TopicCreated, TopicDeleted
from raylog.wire.errors import RequestTimedOut
from raylog.wire.internal.blobs import BLOB_ELEMENTS_MAX, decode_blob, encode_value
from raylog.wire.internal.consumer_groups import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription
from raylog.wire.internal.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.unit.actors.group.test_offsets import committing
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.group.actor import CoordinatorWorld, host_of, run
from tests.worlds.group.shard import ShardWorld
from tests.worlds.metadata import id_of
from tests.worlds.runtime import settle

OTHER_BROKER = 2
LARGE = 3_000
"""Topics that a member subscribes to: about 20 kB."""


def _metadata(number: int, *topics: str) -> bytes:
    names = [*topics, *(f"{number}-{n}" for n in range(LARGE))]
    return encode_value(ConsumerProtocolSubscription(topics=names), 1)


def _generation(*members: bytes, generation: int = 1, at_ms: int = 0) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="m0",
        current_state_timestamp=at_ms,
        members=[
            MemberMetadata(
                member_id=f"m{at}",
                client_id="c",
                client_host="/h",
                rebalance_timeout=60_000,
                session_timeout=1_800_000,
                subscription=metadata,
                assignment=b"",
            )
            for at, metadata in enumerate(members)
        ],
    )


def _begin_generation(world: CoordinatorWorld, value: GroupMetadataValue) -> None:
    host_of(world)._run(lambda step: step.append(GroupMetadataKey(group="g"), value))


def _deleting(topic: str) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    )


class Read:
    """Bytes of subscriptions that were decoded on the event loop, and in threads."""

    def __init__(self, world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = self.aside = 0
        self.before: Callable[[], None] | None = None
        """What happens while a thread reads."""
        self._is_aside = False
        decode = decode_blob

        def decoding(cls: Any, blob: bytes) -> Any:
            if self._is_aside:
                self.aside += len(blob)
            else:
                self.here += len(blob)
            return decode(cls, blob)

        async def run_blocking(function: Any, *args: Any) -> Any:
            if self.before is not None:
                before, self.before = self.before, None
                before()
            self._is_aside = True
            try:
                return function(*args)
            finally:
                self._is_aside = False

        monkeypatch.setattr(subscriptions, "decode_blob", decoding)
        monkeypatch.setattr(world.runtime, "run_blocking", run_blocking)


def _codes(answer: Any) -> list[int]:
    return [one.error_code for topic in answer.topics for one in topic.partitions]


@in_world(run, TMP_PATH)
async def test_large_subscriptions_are_read_by_a_thread_once(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identical ones once; the assignment of the same generation changes nothing about them."""

    await world.begin()
    await world.ask(committing({0: 1}, generation=-1), 9)
    members = [_metadata(0, "t"), _metadata(1), _metadata(1)]
    _begin_generation(world, _generation(*members))
    read = Read(world, monkeypatch)
    assert _codes(await world.ask(_deleting("t"), 0)) == [86], "GROUP_SUBSCRIBED_TO_TOPIC"
    assert (read.here, read.aside) == (0, len(members[0]) + len(members[1]))
    value = _generation(*members)
    value.members[0].assignment = b"assigned"
    _begin_generation(world, value)
    assert _codes(await world.ask(_deleting("t"), 0)) == [86]
    assert (read.here, read.aside) == (0, len(members[0]) + len(members[1]))


@in_world(run, TMP_PATH)
async def test_a_generation_that_begins_meanwhile_is_read_as_well(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}, generation=-1), 9)
    _begin_generation(world, _generation(_metadata(0, "t")))
    read = Read(world, monkeypatch)
    later = _generation(_metadata(1), generation=2)
    read.before = lambda: _begin_generation(world, later)
    assert _codes(await world.ask(_deleting("t"), 0)) == [0], "nobody reads it any more"
    assert read.here == 0


@in_world(run, TMP_PATH)
async def test_a_shard_that_is_left_meanwhile_answers_once(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    await world.ask(committing({0: 1}, generation=-1), 9)
    _begin_generation(world, _generation(_metadata(0, "t")))
    read = Read(world, monkeypatch)
    read.before = lambda: host_of(world).close("the leader is another")
    answer = await world.ask(_deleting("t"), 0)
    assert answer.error_code == 16, "NOT_COORDINATOR"


@in_world(run, TMP_PATH, offsets_retention_check_interval_ms="1000")
async def test_the_look_for_expired_offsets_has_them_read_by_a_thread(
    world: CoordinatorWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.begin()
    for topic in ("t", "u"):
        await world.apply(
            TopicCreated(id_of(topic), topic), PartitionCreated(id_of(topic), 0, (1,), (1,), 1)
        )
        await world.ask(committing({0: 1}, topic, generation=-1, retention_ms=1), 4)
    _begin_generation(world, _generation(_metadata(0, "t")))
    read = Read(world, monkeypatch)
    await world.runtime.advance(2_000)
    assert set(host_of(world).shard.offsets.of("g")) == {"t"}, "nobody reads the other one"
    assert read.here == 0
    assert read.aside > 0


def test_more_topics_than_a_cluster_has_cannot_be_read() -> None:
    """One group does not fill the memory: it is as one whose metadata says nothing."""
    names = [f"{number}" for number in range(BLOB_ELEMENTS_MAX)]
    encoded = [
        encode_value(ConsumerProtocolSubscription(topics=some), 1) for some in (names, ["one more"])
    ]
    assert subscriptions.topics_of(encoded[:1]) == frozenset(names)
    assert subscriptions.topics_of(encoded) is None


async def _with_large_topic(world: CoordinatorWorld, count: int, **fields: Any) -> None:
    await world.begin()
    await world.apply(
        TopicCreated(id_of("large"), "large"),
        *(PartitionCreated(id_of("large"), at, (1,), (1,), 1) for at in range(count)),
    )
    version = 4 if fields else 9
    await world.ask(committing(dict.fromkeys(range(count), 5), "large", **fields), version)
    await world.runtime.advance(1)


class Steps:
    """How many records each step wrote."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[int] = []
        append = ShardHost._append

        def appending(host: ShardHost, step: Any) -> None:
            self.records.append(len(step.records))
            append(host, step)

        monkeypatch.setattr(ShardHost, "_append", appending)


def test_a_shard_forgets_what_went_before_it_was_loaded_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic was deleted while another broker led the shard."""
    count = 2 * SWEPT_AT_ONCE + 100

    async def scenario(world: CoordinatorWorld) -> None:
        await _with_large_topic(world, count)
        world.restart()
        steps = Steps(monkeypatch)
        await world.begin()  # with metadata that has no such topic
        await world.runtime.advance(1)
        assert steps.records == [SWEPT_AT_ONCE, SWEPT_AT_ONCE, 100]
        asked = OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = await world.ask(OffsetFetchRequest(groups=[asked]), 8)
        assert answer.groups[0].topics == []
        world.restart()
        steps.records.clear()
        await world.begin()
        await world.runtime.advance(1)
        assert steps.records == [], "the log has it"

    run(scenario, tmp_path)


def test_offsets_of_one_group_expire_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * SWEPT_AT_ONCE + 100

    async def scenario(world: CoordinatorWorld) -> None:
        await _with_large_topic(world, count, retention_ms=1)
        steps = Steps(monkeypatch)
        await world.runtime.advance(2_000)
        assert steps.records == [SWEPT_AT_ONCE, SWEPT_AT_ONCE, 101], "the group's own is the last"

    run(scenario, tmp_path, offsets_retention_check_interval_ms="1000")


def test_offsets_of_a_topic_that_goes_while_a_shard_is_loaded_are_forgotten_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they are to go is noted until the log has it."""
    count = SWEPT_AT_ONCE + 100

    async def scenario(world: CoordinatorWorld) -> None:
        await _with_large_topic(world, count)
        host = host_of(world)
        loaded = Shard.loaded

        def loading(*args: Any) -> None:
            assert set(host._deleted) == {"large"}
            loaded(*args)

        monkeypatch.setattr(Shard, "loaded", loading)
        host.append_lost(RequestTimedOut("not known"))
        await world.apply(TopicDeleted(id_of("large")))
        steps = Steps(monkeypatch)
        await world.runtime.advance(5_000)
        assert steps.records == [SWEPT_AT_ONCE, 100]
        assert host._deleted == {}

    run(scenario, tmp_path)


def test_many_groups_take_in_changes_and_a_load_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of some kilobytes may delete a thousand topics, which concerns every group."""
    count = 2 * SWEPT_AT_ONCE + 100
    seen: list[int] = []

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        host = host_of(world)
        for number in range(count):
            key = ConsumerGroupMetadataKey(group_id=f"g{number}")
            host._run(partial(Step.append, key=key, value=ConsumerGroupMetadataValue(epoch=1)))
        await world.runtime.advance(1)
        for name, call in (("loaded", Shard.loaded), ("topics_changed", Shard.topics_changed)):

            def recording(*args: Any, call: Any = call) -> None:
                seen.append(len(args[-1]))
                call(*args)

            monkeypatch.setattr(Shard, name, recording)
        await world.apply(TopicCreated(id_of("u"), "u"))
        await world.apply(PartitionCreated(id_of("u"), 0, (1,), (1,), 1))
        assert seen == [SWEPT_AT_ONCE], "others have their turn"
        await world.runtime.advance(1)
        assert seen == [SWEPT_AT_ONCE, SWEPT_AT_ONCE, 100]
        seen.clear()
        host.append_lost(RequestTimedOut("not known"))
        await world.runtime.advance(5_000)
        assert seen == [SWEPT_AT_ONCE, SWEPT_AT_ONCE, 100]

    run(scenario, tmp_path)


Interruption = Callable[[CoordinatorWorld], Awaitable[None]]


async def _moved_away(world: CoordinatorWorld) -> None:
    await world.lead(OTHER_BROKER)


async def _loaded_again(world: CoordinatorWorld) -> None:
    """It has begun anew from the log before the next turn comes."""
    host_of(world).append_lost(RequestTimedOut("not known"))
    await settle()
    assert host_of(world).is_active


@pytest.mark.parametrize(("interrupt", "left"), [(_moved_away, []), (_loaded_again, [PART, 100])])
def test_groups_of_a_shard_that_was_left_take_in_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Interruption, left: list[int]
) -> None:
    """What has changed concerns who has the shard by now, and a load looks at everything."""
    seen: list[tuple[str, int]] = []

    monkeypatch.setattr(hosting, "SWEPT_AT_ONCE", PART)

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        for number in range(PART + 100):
            key = ConsumerGroupMetadataKey(group_id=f"g{number}")
            append = partial(Step.append, key=key, value=ConsumerGroupMetadataValue(epoch=1))
            host_of(world)._run(append)
        await world.runtime.advance(1)
        for name, call in (("loaded", Shard.loaded), ("topics_changed", Shard.topics_changed)):

            def recording(*args: Any, name: str = name, call: Any = call) -> None:
                seen.append((name, len(args[-1])))
                call(*args)

            monkeypatch.setattr(Shard, name, recording)
        partition = PartitionCreated(id_of("u"), 0, (1,), (1,), 1)
        await world.apply(TopicCreated(id_of("u"), "u"), partition)
        await interrupt(world)
        await world.runtime.advance(5_000)
        assert [size for name, size in seen if name == "topics_changed"] == [PART]
        assert [size for name, size in seen if name == "loaded"] == left

    run(scenario, tmp_path)


@pytest.mark.parametrize(("interrupt", "left"), [(_moved_away, []), (_loaded_again, [PART, 100])])
def test_a_shard_that_was_left_forgets_no_offsets_of_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Interruption, left: list[int]
) -> None:
    monkeypatch.setattr(hosting, "SWEPT_AT_ONCE", PART)

    async def scenario(world: CoordinatorWorld) -> None:
        await _with_large_topic(world, PART + 100)
        steps = Steps(monkeypatch)
        await world.apply(TopicDeleted(id_of("large")))
        assert steps.records == [PART]
        await interrupt(world)
        await world.runtime.advance(5_000)
        assert steps.records[1:] == left, "what was not written goes once"

    run(scenario, tmp_path)


@pytest.mark.parametrize(("interrupt", "left"), [(_moved_away, []), (_loaded_again, [PART, 101])])
def test_offsets_of_a_shard_that_was_left_expire_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Interruption, left: list[int]
) -> None:
    monkeypatch.setattr(hosting, "SWEPT_AT_ONCE", PART)

    async def scenario(world: CoordinatorWorld) -> None:
        await _with_large_topic(world, PART + 100, retention_ms=1)
        steps = Steps(monkeypatch)
        host = host_of(world)
        await world.runtime.advance(10)
        host._expire()
        assert steps.records == [PART]
        await interrupt(world)
        await world.runtime.advance(500)
        assert steps.records == [PART], "the next look has its time"
        await world.runtime.advance(1_500)
        assert steps.records[1:] == left

    run(scenario, tmp_path, offsets_retention_check_interval_ms="1000")


def test_subscriptions_are_looked_up_in_the_changed_topics() -> None:
    """And not each of the topics that have changed in what each group subscribes to."""

    class Counted(frozenset[str]):
        looks = 0

        def isdisjoint(self, other: Iterable[object]) -> bool:
            Counted.looks += sum(1 for _ in other)
            return super().isdisjoint(other)

        def __iter__(self) -> Iterator[str]:
            Counted.looks += len(self)
            return super().__iter__()

    world = ShardWorld()
    world.topics(t=1)
    for group in ("g", "h"):
        join = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert not world.ask(join, 1).error_code
    names = Counted(f"u{number}" for number in range(1_000))
    world.run(lambda step: world.shard.topics_changed(step, names, ["g", "h"]))
    assert Counted.looks == 2
    stale = [group._group.metadata_is_stale for group in _consumers(world)]
    assert stale == [False, False]
    world.run(lambda step: world.shard.topics_changed(step, Counted(["t"]), ["h"]))
    assert [group._group.metadata_is_stale for group in _consumers(world)] == [False, True]


def _consumers(world: ShardWorld) -> list[ConsumerGroup]:
    return [one for one in world.shard.groups.values() if isinstance(one, ConsumerGroup)]
