"""Metadata restored from older copies: brokers that have newer metadata reject them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from raylog.actors.metadata.followed import Followed, contradiction
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    ClusterNamed,
    FeatureChanged,
    LeaderChanged,
    Record,
    decode_record,
    encode_record,
)
from raylog.actors.metadata.terms import NONCE_END


@dataclass(frozen=True)
class Copy:
    """Records, and the first one that no older build wrote.

    A snapshot may replace the first ones.
    """

    records: tuple[Record, ...]
    upgraded_at: int
    snapshot_at: int = 0

    @property
    def image(self) -> MetadataImage:
        """The image of a controller that has loaded this copy."""
        image = MetadataImage()
        image.apply_all(self.records[: self.snapshot_at])
        if self.snapshot_at:
            snapshot: list[Record] = list(image.snapshot())
            if self.snapshot_at <= self.upgraded_at:
                snapshot[0] = LeaderChanged(image.controller_epoch)
            snapshot = [decode_record(encode_record(record)) for record in snapshot]
            image = MetadataImage()
            image.apply_update(-1, self.snapshot_at, snapshot)
        image.apply_all(self.records[self.snapshot_at :])
        return image


NEXT = st.one_of(
    st.tuples(st.just("controller")),
    st.tuples(st.just("records"), st.integers(1, 5)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("copy")),
    st.tuples(st.just("restore"), st.integers(0, 20)),
    st.tuples(st.just("note")),
)


class World:
    """The metadata of one cluster, its copies, and what brokers have recorded about it."""

    def __init__(self, seed: int, old_controllers: int) -> None:
        self.chance = Random(seed)
        self.copy = Copy((), 0)
        self.copies: list[Copy] = []
        self.notes: list[tuple[Followed, Copy]] = []
        for _ in range(max(old_controllers, 1)):
            self.controller(old=bool(old_controllers))
            self.records(2)
        self.kept()

    def add(self, *records: Record) -> None:
        self.copy = Copy(
            (*self.copy.records, *records), self.copy.upgraded_at, self.copy.snapshot_at
        )

    def controller(self, *, old: bool = False) -> None:
        epoch = self.copy.image.controller_epoch + 1
        nonce = 0 if old else self.chance.randrange(1, NONCE_END)
        self.add(LeaderChanged(epoch, "", nonce))
        if epoch == 1:
            self.add(ClusterNamed("c", "m"))
        if old:
            self.copy = Copy(self.copy.records, len(self.copy.records) + 2)

    def records(self, count: int) -> None:
        for _ in range(count):
            self.add(FeatureChanged("f", 1, self.chance.randrange(1 << 60)))

    def snapshot(self) -> None:
        self.copy = Copy(self.copy.records, self.copy.upgraded_at, len(self.copy.records))

    def kept(self) -> None:
        self.copies.append(self.copy)

    def restore(self, age: int) -> None:
        """Restore an older copy. The next controller continues from there."""
        self.copy = self.copies[-1 - age % len(self.copies)]
        self.controller()

    def note(self) -> None:
        self.notes.append((self.copy.image.followed, self.copy))

    def go_on(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("controller",):
                self.controller()
            case ("records", count):
                self.records(count)
            case ("snapshot",):
                self.snapshot()
            case ("copy",):
                self.kept()
            case ("restore", age):
                self.restore(age)
            case _:
                self.note()


@given(st.integers(0, 1 << 30), st.integers(0, 3), st.lists(NEXT, max_size=40))
def test_broker_is_accepted_if_its_followed_metadata_is_a_prefix(
    seed: int, old_controllers: int, steps: list[tuple[Any, ...]]
) -> None:
    world = World(seed, old_controllers)
    if old_controllers:
        world.note()
        world.controller()
    for step in steps:
        world.go_on(step)
    assume(world.notes)
    image = world.copy.image
    for noted, then in world.notes:
        is_prefix = world.copy.records[: noted.offset] == then.records
        why = contradiction(noted, image)
        assert (why is None) == is_prefix, why
