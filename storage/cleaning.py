"""Cleans a log: reads the keys, then rewrites segments without records that later ones replace.

`Cleaning` is work in steps (`segment_work.py`). The first step reads the keys. Each further step
makes one segment from a group of neighbours, as many as certainly fit, and leaves it durable, with
its index beside it.

A cleaned segment ends at the same offset as its group, if necessary with an empty batch, so that no
offsets are missing between segments.
"""

from collections import deque
from dataclasses import dataclass, field

from raylog.storage.cleanable import fits
from raylog.storage.cleaned_transactions import CleanedTransactions
from raylog.storage.compaction import Compaction, key_records
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk
from raylog.storage.index import AbortedTransaction
from raylog.storage.latest import LatestOffsets
from raylog.storage.layout import segment_name
from raylog.storage.producers import LastOfProducers
from raylog.storage.segment import Segment
from raylog.storage.segment_work import (
    Damaged,
    Failed,
    Filled,
    Finished,
    KeysRead,
    Made,
    Outcome,
    Pause,
    SegmentOutput,
    SegmentReader,
    Source,
    Stopped,
    Unchanged,
    make_segment,
)
from raylog.wire.errors import CorruptMessage, KafkaError
from raylog.wire.records import read_header


@dataclass(slots=True)
class Cleaning:
    """The work of one cleaning of the first segments of a log.

    `token` differs from that of any cleaning that may still run in a process that was lost.
    """

    disk: Disk
    directory: str
    config: LogConfig
    sources: list[Source]
    first_dirty_offset: int
    generation: int  # of the segments made; no earlier one had it
    aborted: list[AbortedTransaction]
    producers: LastOfProducers
    now_ms: int
    memory_bytes: int
    pause: Pause
    token: str
    _covered: deque[Source] = field(default_factory=deque)  # sources still to be cleaned
    _compaction: Compaction | None = None
    _transactions: CleanedTransactions = field(init=False)
    _reader: SegmentReader = field(init=False)

    def __post_init__(self) -> None:
        """Create the reader."""
        self._reader = SegmentReader(self.disk, self.directory, self.pause)

    def step(self) -> Outcome:
        """Run one step. Blocking; call until it returns `Finished` or `Failed`."""
        try:
            if self._compaction is None:
                return self._read_keys()
            if self._covered:
                return self._clean(self._compaction)
        except Damaged as damage:
            path = f"{self.directory}/{damage.name}"
            failure = CorruptMessage(f"{path} is damaged at byte {damage.position}")
            return Failed(failure, damage.name)
        except (OSError, KafkaError) as failure:
            return Failed(failure)
        except Stopped:
            pass
        return Finished()

    def stop(self) -> None:
        """Ask the running step to end soon; no other step follows. Thread-safe."""
        self._reader.stop()

    # -- the keys ------------------------------------------------------------------------------

    def _read_keys(self) -> KeysRead:
        start = max(self.first_dirty_offset, self.sources[0].base_offset)
        latest = LatestOffsets(start, self.memory_bytes)
        transactions = CleanedTransactions(
            [each for each in self.aborted if each.last_offset >= start]
        )
        records = 0
        for source in self.sources:
            if source.next_offset > start and not latest.is_full:
                records += self._note_keys(source, latest, transactions)
        self._covered.extend(
            [each for each in self.sources if each.base_offset < latest.end_offset]
        )
        self._transactions = CleanedTransactions(self.aborted)
        self._compaction = Compaction(
            latest,
            self._transactions,
            self.producers,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
        )
        return KeysRead(latest.end_offset, records)

    def _note_keys(
        self, source: Source, latest: LatestOffsets, transactions: CleanedTransactions
    ) -> int:
        """Record a segment's keys while there is room; return the number of records read."""
        records = 0
        for header, batch in self._reader.batches(source):
            if header.last_offset < latest.start_offset:
                continue
            latest.note(key_records(header, batch, transactions))
            latest.end_offset = header.next_offset
            records += header.record_count
            if latest.is_full:
                break
        return records

    # -- the segments --------------------------------------------------------------------------

    def _clean(self, compaction: Compaction) -> Made | Unchanged:
        """Make one segment from the next one and the following ones that fit."""
        segment = Segment(segment_name(self._covered[0].base_offset, self.generation), self.now_ms)

        def fill(output: SegmentOutput) -> Filled | None:
            group = self._rewrite_group(compaction, output)
            if group == 1 and not output.rewritten:
                return None  # the result would be identical
            return Filled(group, list(self._transactions.kept))

        made = make_segment(
            self.disk,
            self.directory,
            self.token,
            segment,
            self.config.index_interval_bytes,
            fill,
        )
        return made or Unchanged()

    def _rewrite_group(self, compaction: Compaction, output: SegmentOutput) -> int:
        """Write the remaining records of the next segments; return the number of segments."""
        group = 0
        segment = output.segment
        self._transactions.kept.clear()
        while not group or (
            self._covered and fits(segment, self._covered[0], self.config.segment_bytes)
        ):
            last = self._covered.popleft()
            group += 1
            self._rewrite(last, compaction, output)
        output.end()
        assert segment.next_offset == last.next_offset, "no offsets between segments"
        return group

    def _rewrite(self, source: Source, compaction: Compaction, output: SegmentOutput) -> None:
        """Write the remaining records of a segment."""
        for header, batch in self._reader.batches(source):
            left = compaction.left_of(header, batch)
            if left is batch:
                output.add(header, batch)
            elif left is None:
                output.drop(header)
                continue
            else:
                output.add(read_header(left), left)
                output.rewritten += 1
            self._reader.wrote(len(left))
