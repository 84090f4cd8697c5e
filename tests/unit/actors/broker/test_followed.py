"""The metadata that a broker has followed: saved soon, checked before it is applied."""

import errno
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raylog.actors.broker.followed import NOTE_MS, FollowedMetadata
from raylog.actors.broker.identity import DataDirectory, Identity
from raylog.actors.broker.joining import RETRY_MS, keep_joining
from raylog.actors.common_messages import TopicId
from raylog.actors.metadata.followed import Followed, MetadataRefused
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ClusterNamed, LeaderChanged, Record, TopicCreated
from raylog.simulation.loop import run_in_virtual_time
from raylog.storage.disk import OsDisk
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.metadata import image_of
from tests.worlds.virtual_time import VirtualWorld


class Counting(OsDisk):
    """Counts how often the state file is written; fails on request."""

    def __init__(self) -> None:
        self.notes = 0
        self.failures = 0

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]  # a method here
        if target.endswith("followed.json"):
            if self.failures:
                self.failures -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            self.notes += 1
        super().rename(source, target)


class Bed:
    """A broker's directory, and metadata that grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.disk = path, Counting()
        self.world = VirtualWorld(lambda _: None, 1)  # type: ignore[arg-type,return-value]
        self.runtime = self.world.runtime()
        self.image = MetadataImage()
        self.open()

    def open(self) -> None:
        self.data = DataDirectory(self.path, Identity("c", 3, "d"), fsync=False, disk=self.disk)
        self.followed = FollowedMetadata(self.runtime, self.data)

    def grow(self, count: int = 1) -> None:
        if not self.image.offset:
            self.image.apply_all([LeaderChanged(4), ClusterNamed("c", "m")])
        for number in range(self.image.offset, self.image.offset + count):
            topic_id = TopicId(number.to_bytes(16, "big"))
            self.image.apply(TopicCreated(topic_id, f"t{number}"))
        self.followed.applied(self.image)

    def noted(self) -> Followed:
        self.data.close()
        self.open()
        return self.data.followed


def play(story: Callable[[Bed], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        bed = Bed(path)
        await story(bed)
        bed.data.close()
        assert bed.world.failures == []

    run_in_virtual_time(lambda _: main())


@in_world(play, TMP_PATH)
async def test_followed_metadata_is_noted_at_once_and_then_periodically(bed: Bed) -> None:
    bed.grow()
    await bed.runtime.sleep(0.1)
    assert bed.disk.notes == 1
    for _ in range(500):
        bed.grow()
        await bed.runtime.sleep(0.01)
    assert 4 <= bed.disk.notes - 1 <= 6
    await bed.runtime.sleep(2 * NOTE_MS / 1000)
    before = bed.disk.notes
    bed.followed.applied(bed.image)
    await bed.runtime.sleep(3_600)
    assert bed.disk.notes == before
    assert bed.noted() == Followed("m", 4, bed.image.offset)


@in_world(play, TMP_PATH)
async def test_a_note_that_cannot_be_written_is_tried_again(
    bed: Bed, *, caplog: pytest.LogCaptureFixture
) -> None:
    bed.disk.failures = 2
    bed.grow()
    await bed.runtime.sleep(5)
    assert bed.disk.notes == 1
    assert (
        caplog.messages
        == ["the followed metadata cannot be recorded: [Errno 28] No space left on device"] * 2
    )


@in_world(play, TMP_PATH)
async def test_while_it_catches_up_a_broker_forgets_nothing(bed: Bed) -> None:
    bed.grow(10)
    await bed.followed.note_now()
    whole = bed.image.followed
    assert bed.noted() == whole
    bed.image = MetadataImage()
    bed.grow(3)
    await bed.runtime.sleep(10)
    assert bed.followed.latest == bed.noted() == whole
    bed.grow(8)
    assert bed.followed.latest == bed.image.followed


@pytest.mark.parametrize(
    ("metadata_id", "epoch", "offset", "refused"),
    [
        ("m", 4, 12, False),
        ("m", 9, 100, False),
        ("m", 4, 11, True),
        ("m", 3, 100, True),
        ("other", 9, 100, True),
        ("", 9, 100, False),
    ],
)
@in_world(play, TMP_PATH)
async def test_a_snapshot_is_refused_that_lacks_what_was_followed(
    bed: Bed, *, metadata_id: str, epoch: int, offset: int, refused: bool
) -> None:
    bed.grow(10)
    topic = TopicCreated(TopicId(b"t" * 16), "t")
    first = LeaderChanged(epoch)
    records: list[Record] = [first, ClusterNamed("c", metadata_id), topic]
    snapshot = image_of(offset, records)
    if refused:
        with pytest.raises(MetadataRefused, match="broker 3 cannot follow the metadata"):
            bed.followed.check(snapshot)
    else:
        bed.followed.check(snapshot)


@in_world(play, TMP_PATH)
async def test_refused_broker_retries_joining_and_logs_the_reason_once(
    bed: Bed, *, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    reported: list[str] = []
    tries = iter(range(4))

    async def join() -> None:
        if next(tries) < 3:
            raise MetadataRefused("lost")

    await keep_joining(bed.runtime, join, lambda why: reported.append(str(why)))
    assert reported == ["lost", "lost", "lost", "None"]
    assert caplog.messages == ["the cluster refuses this broker: lost"]
    assert bed.runtime.monotonic_ms() >= (1 + 2 + 4) * RETRY_MS
