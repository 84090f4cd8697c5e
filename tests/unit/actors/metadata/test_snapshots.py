"""Snapshots between processes: encoded in slices, decoded in parts, one update after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    LeaderChanged,
    MetadataCorrupt,
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
    encode_record,
    join_records,
)
from raylog.actors.peers import metadata_copies as snapshots
from raylog.actors.peers.metadata_copies import KEPT_MS, MetadataCopy, SnapshotEncoder, decoded
from tests.worlds.decorators import in_world
from tests.worlds.metadata import image_of, parts_of
from tests.worlds.runtime import FakeRuntime, settle

T = TopicId(b"t" * 16)
COUNT = 40
RECORDS: list[Record] = [
    LeaderChanged(1),
    TopicCreated(T, "t"),
    *(PartitionCreated(T, index, (0, 1), (0, 1), 0) for index in range(COUNT)),
]


class Bed:
    """An image that changes, and the encoder of its snapshots."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.image = MetadataImage()
        self.image.apply_all(RECORDS)
        self.encoder = SnapshotEncoder(self.runtime, self.image)  # type: ignore[arg-type]  # a fake
        self.copied = MetadataImage()
        self.copy = MetadataCopy(self.runtime, self.copied)  # type: ignore[arg-type]  # a fake


def tell(story: Callable[[Bed], Awaitable[None]]) -> None:
    async def main() -> None:
        bed = Bed()
        await story(bed)
        assert not bed.runtime.failures

    asyncio.run(main())


def test_others_run_between_the_slices_and_change_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bed: Bed) -> None:
        taking = asyncio.ensure_future(bed.encoder.take())
        turns = 0
        while not taking.done():
            await asyncio.sleep(0)
            bed.image.apply(PartitionChanged(T, turns % COUNT, leader=1, isr=(1,)))
            turns += 1
        assert turns > len(RECORDS) // 4
        taken = taking.result()
        assert taken.offset == len(RECORDS)
        assert len(taken.parts) == -(-len(taken.records) // 4)
        whole = await decoded(bed.runtime, taken.offset, taken.parts)  # type: ignore[arg-type]  # a fake
        assert whole == image_of(len(RECORDS), RECORDS)

    monkeypatch.setattr(snapshots, "SLICE_RECORDS", 4)
    tell(story)


@in_world(tell)
async def test_cancelled_caller_does_not_cancel_a_shared_snapshot(bed: Bed) -> None:
    first = asyncio.ensure_future(bed.encoder.take())
    second = asyncio.ensure_future(bed.encoder.take())
    first.cancel()
    assert (await second).offset == len(RECORDS)


@in_world(tell)
async def test_one_serves_for_a_while_those_for_whom_it_goes_far_enough(bed: Bed) -> None:
    first = await bed.encoder.take()
    assert await bed.encoder.take() is first
    bed.image.apply(LeaderChanged(2))
    assert await bed.encoder.take(len(RECORDS)) is first
    second = await bed.encoder.take()
    assert second.offset == len(RECORDS) + 1
    assert await bed.encoder.take(0) is second
    await bed.runtime.advance(KEPT_MS)
    third = await bed.encoder.take(0)
    assert third is not second
    assert third.parts == second.parts


@in_world(tell)
async def test_each_request_extends_how_long_a_snapshot_is_kept(bed: Bed) -> None:
    first = await bed.encoder.take()
    await bed.runtime.advance(KEPT_MS - 1)
    assert await bed.encoder.take() is first
    await bed.runtime.advance(KEPT_MS - 1)
    assert await bed.encoder.take() is first
    await bed.runtime.advance(KEPT_MS)
    assert await bed.encoder.take() is not first


@in_world(tell)
async def test_running_encoding_serves_later_requests_it_covers(bed: Bed) -> None:
    taking = asyncio.ensure_future(bed.encoder.take())
    await asyncio.sleep(0)
    bed.image.apply(LeaderChanged(2))
    earlier, later = await asyncio.gather(bed.encoder.take(len(RECORDS)), bed.encoder.take())
    assert earlier is await taking
    assert (earlier.offset, later.offset) == (len(RECORDS), len(RECORDS) + 1)


@in_world(tell)
async def test_updates_are_taken_in_one_after_the_other(bed: Bed) -> None:
    """The snapshot of a broker's last process may still be on its way when the next one begins."""

    older = bed.copy.take_in(-1, len(RECORDS), [], parts_of(RECORDS))
    newer = bed.copy.take_in(-1, 50, [], parts_of([LeaderChanged(7)]))
    last = bed.copy.take_in(50, 51, [TopicCreated(T, "t")])
    taken = [asyncio.ensure_future(one) for one in (older, newer, last)]
    assert await asyncio.gather(*taken) == [True] * 3
    assert bed.copied == image_of(51, [LeaderChanged(7), TopicCreated(T, "t")])


@in_world(tell)
async def test_an_old_update_is_passed_over_and_a_gap_is_a_mistake(bed: Bed) -> None:
    assert await bed.copy.take_in(0, len(RECORDS), RECORDS)
    assert not await bed.copy.take_in(3, 4, RECORDS[3:4])
    with pytest.raises(ValueError, match=f"offset 60 came, {len(RECORDS)} was expected"):
        await bed.copy.take_in(60, 61, [TopicDeleted(T)])
    assert bed.copied == bed.image


@in_world(tell)
async def test_the_image_is_the_old_one_until_the_new_one_is_whole(bed: Bed) -> None:
    seen: list[tuple[int, MetadataImage | None]] = []
    await bed.copy.take_in(0, len(RECORDS), RECORDS)
    taking = asyncio.ensure_future(
        bed.copy.take_in(
            -1,
            99,
            [],
            parts_of([LeaderChanged(5), *RECORDS[1:]]),
            lambda whole: seen.append((bed.copied.offset, whole)),
        )
    )
    while not taking.done():
        assert bed.copied == bed.image
        await asyncio.sleep(0)
    await settle()
    ((offset, whole),) = seen
    assert offset == len(RECORDS)
    assert whole is not None
    assert bed.copied.topics is whole.topics
    assert (bed.copied.offset, bed.copied.controller_epoch) == (99, 5)


@in_world(tell)
async def test_a_snapshot_of_a_build_that_knew_no_parts_is_taken_in_as_well(bed: Bed) -> None:
    """An empty image would have every topic of the cluster taken for a stray."""

    assert await bed.copy.take_in(-1, 60, RECORDS)
    assert bed.copied == image_of(60, RECORDS)


@pytest.mark.parametrize("damage", [lambda part: part[:-1], lambda part: part + b"\x01"])
@in_world(tell)
async def test_a_damaged_part_is_an_error(bed: Bed, *, damage: Callable[[bytes], bytes]) -> None:
    await bed.copy.take_in(0, len(RECORDS), RECORDS)
    part = damage(join_records(list(map(encode_record, RECORDS))))
    with pytest.raises(MetadataCorrupt):
        await bed.copy.take_in(-1, 99, [], (part,))
    assert bed.copied == bed.image
