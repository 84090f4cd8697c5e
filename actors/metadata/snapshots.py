"""Snapshots of the metadata between processes: encoded once, sent in parts, decoded part by part.

With 100,000 partitions encoding or decoding takes seconds of a core. Both go in slices with the
event loop between them, so that nobody waits for more than a few ms: a snapshot of an image costs
nothing to take and does not change (`metadata.image`), and what is decoded becomes an image of its
own until it is whole.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - of shells: those who need a snapshot wait for one encoding of it
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TypeVar

from raylog.actors.collecting import stay
from raylog.actors.metadata.image import MetadataImage, Snapshot, Topic
from raylog.actors.metadata.records import Record, decode_records, encode_record, join_records
from raylog.actors.runtime.base import Runtime, Timer

T = TypeVar("T")
SLICE_RECORDS = 256
"""Encoded or decoded at once: 2 or 3 ms."""
FREED_TOPICS = 64
KEPT_MS = 60_000
"""Brokers that start together ask one after the other."""


def sliced(items: Iterable[T]) -> Iterator[list[T]]:
    """As many items at a time as are encoded or decoded at once."""
    rest = iter(items)
    while one := list(islice(rest, SLICE_RECORDS)):
        yield one


class EncodedSnapshot:
    """A snapshot as the metadata log has it: each record encoded."""

    def __init__(self, offset: int, slices: list[list[bytes]]) -> None:
        self.offset = offset
        self._slices = slices

    @property
    def records(self) -> tuple[bytes, ...]:
        """One by one, for voters."""
        return tuple(chain.from_iterable(self._slices))

    @cached_property
    def parts(self) -> tuple[bytes, ...]:
        """Slice by slice, for those who follow the metadata."""
        return tuple(map(join_records, self._slices))


class SnapshotEncoder:
    """Encodes snapshots of one image, each once for all who need it, and forgets them soon."""

    def __init__(self, runtime: Runtime, image: MetadataImage) -> None:
        self._runtime = runtime
        self._image = image
        self._latest: tuple[int, asyncio.Future[EncodedSnapshot]] | None = None
        self._forgetting: Timer | None = None

    def take(self, least_offset: int | None = None) -> Awaitable[EncodedSnapshot]:
        """Take a snapshot now; it is there when it is encoded.

        With `least_offset` an earlier one that goes so far does as well.
        """
        least_offset = self._image.offset if least_offset is None else least_offset
        if self._latest is None or self._latest[0] < least_offset:
            snapshot = self._image.snapshot()
            encoded: asyncio.Future[EncodedSnapshot] = asyncio.get_running_loop().create_future()
            self._latest = snapshot.offset, encoded
            self._runtime.start(self._encode(snapshot, encoded), "encode the metadata")
        self._forget_later()
        return asyncio.shield(self._latest[1])  # who waits no longer does not call it off

    async def _encode(self, snapshot: Snapshot, encoded: asyncio.Future[EncodedSnapshot]) -> None:
        slices = []
        for records in sliced(snapshot):
            slices.append([encode_record(record) for record in records])
            await self._runtime.sleep(0)
        encoded.set_result(EncodedSnapshot(snapshot.offset, slices))

    def _forget_later(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = self._runtime.call_later(KEPT_MS, self._forget)

    def _forget(self) -> None:
        self._latest = self._forgetting = None


async def decoded(
    runtime: Runtime, offset: int, parts: Sequence[bytes], records: Sequence[Record] = ()
) -> MetadataImage:
    """The image that a snapshot up to an offset adds up to, for another to become.

    It comes in parts; from a process of a build that knew no parts, as records. Raises
    MetadataCorrupt for parts that are damaged.
    """
    image = MetadataImage()
    for number, records_there in enumerate(chain(sliced(records), map(decode_records, parts)), 1):
        image.apply_all(records_there)
        stay(number)
        await runtime.sleep(0)
    image.ends_at(offset)
    return image


class MetadataCopy:
    """Keeps an image as it is told to, one update after the other.

    A new process of who tells may begin while a snapshot of the last one is still being decoded.
    """

    def __init__(self, runtime: Runtime, image: MetadataImage) -> None:
        self._runtime = runtime
        self._image = image
        self._busy = asyncio.Lock()

    async def take_in(
        self,
        from_offset: int,
        to_offset: int,
        records: Sequence[Record],
        parts: Sequence[bytes] = (),
        changing: Callable[[MetadataImage | None], None] = lambda _: None,
    ) -> bool:
        """Take in an update: records, or with a `from_offset` of -1 a snapshot in parts.

        False if it is old; raises ValueError if it leaves a gap. `changing` is called right before
        the image changes, with the one that takes its place, if it is replaced.
        """
        async with self._busy:
            whole = None
            if from_offset < 0:
                whole = await decoded(self._runtime, to_offset, parts, records)
            changing(whole)
            if whole is not None:
                old = list(self._image.topics.values())
                self._image.become(whole)
                self._runtime.start(_let_go(self._runtime, old), "let old metadata go")
                return True
            if self._image.apply_update(from_offset, to_offset, records):
                return True
            if to_offset > self._image.offset:
                raise ValueError(
                    f"metadata from offset {from_offset} came, {self._image.offset} was expected"
                )
            return False


async def _let_go(runtime: Runtime, topics: list[Topic]) -> None:
    """Free what nobody needs any more, a few topics at a time."""
    while topics:
        del topics[-FREED_TOPICS:]
        await runtime.sleep(0)
