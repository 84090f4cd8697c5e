"""Snapshots between processes: encoded in slices, decoded in parts, one update after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raylog.actors.metadata import snapshots
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
from raylog.actors.metadata.snapshots import KEPT_MS, MetadataCopy, SnapshotEncoder, decoded
from raylog.actors.ports import TopicId
from tests.support.gateway_world import FakeRuntime, settle
from tests.support.metadata import image_of, parts_of

T = TopicId(b"t" * 16)
COUNT = 40
RECORDS: list[Record] = [
    LeaderChanged(1),
    TopicCreated(T, "t"),
    *(PartitionCreated(T, index, (0, 1), (0, 1), 0) for index in range(COUNT)),
]


class Bed:
    """An image that changes, and what encodes its snapshots."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.image = MetadataImage()
        self.image.apply_all(RECORDS)
        self.encoder = SnapshotEncoder(self.runtime, self.image)  # type: ignore[arg-type]  # a fake
        self.copied = MetadataImage()
        self.copy = MetadataCopy(self.runtime, self.copied)  # type: ignore[arg-type]  # a fake


def tell(story: Callable[[Bed], Awaitable[None]]) -> None:
    async def told() -> None:
        bed = Bed()
        await story(bed)
        assert not bed.runtime.failures

    asyncio.run(told())


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


def test_who_goes_away_does_not_call_it_off_for_the_others() -> None:
    async def story(bed: Bed) -> None:
        first = asyncio.ensure_future(bed.encoder.take())
        second = asyncio.ensure_future(bed.encoder.take())
        first.cancel()
        assert (await second).offset == len(RECORDS)

    tell(story)


def test_one_serves_for_a_while_those_for_whom_it_goes_far_enough() -> None:
    async def story(bed: Bed) -> None:
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

    tell(story)


def test_who_asks_again_has_it_kept_for_longer() -> None:
    async def story(bed: Bed) -> None:
        first = await bed.encoder.take()
        await bed.runtime.advance(KEPT_MS - 1)
        assert await bed.encoder.take() is first
        await bed.runtime.advance(KEPT_MS - 1)
        assert await bed.encoder.take() is first
        await bed.runtime.advance(KEPT_MS)
        assert await bed.encoder.take() is not first

    tell(story)


def test_one_that_is_being_encoded_serves_those_who_come_meanwhile() -> None:
    async def story(bed: Bed) -> None:
        taking = asyncio.ensure_future(bed.encoder.take())
        await asyncio.sleep(0)
        bed.image.apply(LeaderChanged(2))
        earlier, later = await asyncio.gather(bed.encoder.take(len(RECORDS)), bed.encoder.take())
        assert earlier is await taking
        assert (earlier.offset, later.offset) == (len(RECORDS), len(RECORDS) + 1)

    tell(story)


def test_updates_are_taken_in_one_after_the_other() -> None:
    """The snapshot of a broker's last process may still be on its way when the next one begins."""

    async def story(bed: Bed) -> None:
        older = bed.copy.take_in(-1, len(RECORDS), [], parts_of(RECORDS))
        newer = bed.copy.take_in(-1, 50, [], parts_of([LeaderChanged(7)]))
        last = bed.copy.take_in(50, 51, [TopicCreated(T, "t")])
        taken = [asyncio.ensure_future(one) for one in (older, newer, last)]
        assert await asyncio.gather(*taken) == [True] * 3
        assert bed.copied == image_of(51, [LeaderChanged(7), TopicCreated(T, "t")])

    tell(story)


def test_an_old_update_is_passed_over_and_a_gap_is_a_mistake() -> None:
    async def story(bed: Bed) -> None:
        assert await bed.copy.take_in(0, len(RECORDS), RECORDS)
        assert not await bed.copy.take_in(3, 4, RECORDS[3:4])
        with pytest.raises(ValueError, match=f"offset 60 came, {len(RECORDS)} was expected"):
            await bed.copy.take_in(60, 61, [TopicDeleted(T)])
        assert bed.copied == bed.image

    tell(story)


def test_the_image_is_the_old_one_until_the_new_one_is_whole() -> None:
    async def story(bed: Bed) -> None:
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

    tell(story)


def test_a_snapshot_of_a_build_that_knew_no_parts_is_taken_in_as_well() -> None:
    """An empty image would have every topic of the cluster taken for a stray."""

    async def story(bed: Bed) -> None:
        assert await bed.copy.take_in(-1, 60, RECORDS)
        assert bed.copied == image_of(60, RECORDS)

    tell(story)


@pytest.mark.parametrize("damage", [lambda part: part[:-1], lambda part: part + b"\x01"])
def test_a_damaged_part_is_an_error(damage: Callable[[bytes], bytes]) -> None:
    async def story(bed: Bed) -> None:
        await bed.copy.take_in(0, len(RECORDS), RECORDS)
        part = damage(join_records(list(map(encode_record, RECORDS))))
        with pytest.raises(MetadataCorrupt):
            await bed.copy.take_in(-1, 99, [], (part,))
        assert bed.copied == bed.image

    tell(story)
