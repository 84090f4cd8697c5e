"""The simulation's own clients: what they must not assume."""

from __future__ import annotations

from typing import Any

from raylog.actors.common_messages import TopicId
from raylog.simulation.clients import Ledger, Reader
from raylog.simulation.cluster import Cluster
from raylog.simulation.loop import SimLoop, run_in_virtual_time
from raylog.simulation.properties import Checks
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import Fetched, simulated_role
from raylog.simulation.world import World
from raylog.wire.errors import OffsetNotAvailable
from raylog.wire.records import Record, encode_batch

VALUES = (b"a", b"b", b"c")
KNOWN = 2
"""High watermark that the leader had as a follower: one record behind the start of its epoch."""
EPOCH = 4


class ReaderOfNewLeader(Reader):
    """A reader whose leader has all records, but at first has not heard from its followers."""

    def __init__(self, cluster: Cluster, known_after: int) -> None:
        super().__init__(cluster, Checks(), Ledger("t", TopicId(b"t" * 16), 0, -1), 0)
        self._leader, self._leader_epoch = 0, EPOCH
        self._unknown_reads = known_after
        self.epochs_asked: set[int] = set()

    async def ask(self, method: str, *args: Any) -> Any:
        """Answer as a leader does."""
        await self.runtime.sleep(0.01)
        self._unknown_reads -= 1
        high_watermark = len(VALUES) if self._unknown_reads < 0 else KNOWN
        if method == "latest":
            self.epochs_asked.add(args[0])
            if high_watermark < len(VALUES):
                raise OffsetNotAvailable("the high watermark is not in the leader's epoch yet")
            return high_watermark
        [offset] = args
        return Fetched(high_watermark, 0, _batches(offset, high_watermark))


def _batches(offset: int, high_watermark: int) -> bytes:
    return b"".join(
        encode_batch([Record(at, 0, None, VALUES[at], [])], base_offset=at)
        for at in range(offset, high_watermark)
    )


def _read(known_after: int) -> tuple[bool, ReaderOfNewLeader]:
    async def begin(loop: SimLoop) -> tuple[bool, ReaderOfNewLeader]:
        cluster = Cluster(World(loop, 0, simulated_role, SimRuntime), 1, {})
        reader = ReaderOfNewLeader(cluster, known_after)
        return await reader.read_to_end(5.0), reader

    return run_in_virtual_time(begin)


def test_reader_waits_until_the_new_leader_releases_records() -> None:
    is_whole, reader = _read(known_after=3)
    assert is_whole
    assert reader.ledger.seen == dict(enumerate(VALUES))
    assert reader.epochs_asked == {EPOCH}


def test_a_leader_that_never_knows_its_end_is_not_readable() -> None:
    is_whole, reader = _read(known_after=1_000_000)
    assert not is_whole
    assert reader.ledger.seen == {}
