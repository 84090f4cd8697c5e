"""Metadata snapshots between processes: encoded once, sent in parts and decoded part by part.

With 100,000 partitions, encoding or decoding takes seconds of CPU time. Both are done in slices,
with the event loop running in between, so that nothing is delayed by more than a few ms. Taking a
snapshot of an image costs nothing, and the snapshot does not change (`metadata.image`). Decoding
fills a separate image until that is complete.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of a shell: several callers wait for one encoding
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TypeVar

from raylog.actors.gc_tuning import stay
from raylog.actors.metadata.image import MetadataImage, Snapshot, Topic
from raylog.actors.metadata.records import Record, decode_records, encode_record, join_records
from raylog.actors.runtime.base import Runtime, Timer

T = TypeVar("T")
SLICE_RECORDS = 256
"""Records to encode or decode in one go: 2 or 3 ms."""
FREED_TOPICS = 64
KEPT_MS = 60_000
"""How long a snapshot is cached: brokers that start together request it one after the other."""


def sliced(items: Iterable[T]) -> Iterator[list[T]]:
    """Split items into lists to encode or decode in one go."""
    rest = iter(items)
    while one := list(islice(rest, SLICE_RECORDS)):
        yield one


class EncodedSnapshot:
    """A snapshot with each record encoded as in the metadata log."""

    def __init__(self, offset: int, slices: list[list[bytes]]) -> None:
        self.offset = offset
        self._slices = slices

    @property
    def records(self) -> tuple[bytes, ...]:
        """Its records, for voters."""
        return tuple(chain.from_iterable(self._slices))

    @cached_property
    def parts(self) -> tuple[bytes, ...]:
        """Its slices, for followers of the metadata."""
        return tuple(map(join_records, self._slices))


class SnapshotEncoder:
    """Encodes snapshots of an image, each once for all requests, and caches the latest briefly."""

    def __init__(self, runtime: Runtime, image: MetadataImage) -> None:
        self._runtime = runtime
        self._image = image
        self._latest: tuple[int, asyncio.Future[EncodedSnapshot]] | None = None
        self._forgetting: Timer | None = None

    def take(self, least_offset: int | None = None) -> Awaitable[EncodedSnapshot]:
        """Take a snapshot now; the result is available once it is encoded.

        With `least_offset`, an earlier snapshot that includes that offset is also fine.
        """
        least_offset = self._image.offset if least_offset is None else least_offset
        if self._latest is None or self._latest[0] < least_offset:
            snapshot = self._image.snapshot()
            encoded: asyncio.Future[EncodedSnapshot] = asyncio.get_running_loop().create_future()
            self._latest = snapshot.offset, encoded
            self._runtime.start(self._encode(snapshot, encoded), "encode the metadata")
        self._forget_later()
        return asyncio.shield(self._latest[1])  # cancelling one waiter must not cancel the encoding

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
    """Decode a snapshot up to an offset into a new image.

    It comes in parts or, from builds without parts, as records. Raises MetadataCorrupt if a part is
    damaged.
    """
    image = MetadataImage()
    for number, records_there in enumerate(chain(sliced(records), map(decode_records, parts)), 1):
        image.apply_all(records_there)
        stay(number)
        await runtime.sleep(0)
    image.ends_at(offset)
    return image


class MetadataCopy:
    """Keeps an image up to date by applying updates one at a time.

    A new process of the peer may send updates while a snapshot from the old one is still being
    decoded.
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
        """Apply an update: records, or a snapshot in parts if `from_offset` is -1.

        Returns False if it is old; raises ValueError if it leaves a gap. `changing` is called right
        before the image changes, with the new image if it is replaced.
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
    """Free unused topics, a few at a time."""
    while topics:
        del topics[-FREED_TOPICS:]
        await runtime.sleep(0)
