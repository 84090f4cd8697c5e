"""One partition's progress: the offset that may be committed, and its note.

Offsets are in one of four ranges, in this order:

| range | state |
|---|---|
| below `base` | finished: covered by the committed offset |
| `base` to `high` | started, finished, or passed by a later start: the note lists those finished |
| from `high` on | fetched, none of them started |
| from `next_offset` on | not fetched; a note from before a restart may list some as finished |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.note import NOTE_BYTES_MAX, Range, encode_note, note_bytes_at_most
from raylog.wire.record import Record


class Entry:
    """One record in the window."""

    __slots__ = ("due_ms", "is_finished", "offset", "record", "size")

    def __init__(self, record: Record, size: int, due_ms: float) -> None:
        self.offset = record.offset
        self.record = record
        self.size = size
        """Approximate bytes of key and value."""
        self.due_ms = due_ms
        """Earliest start: a record of a retry topic must wait."""
        self.is_finished = False


class Progress:
    """One partition, from its assignment to its revocation.

    Invariants: an offset below `base` is finished or has no record; `base` never moves back; the
    note of every possible next state fits, as long as records start only if `may_start` allows it.
    """

    def __init__(
        self,
        key: TopicPartition,
        committed: int | None,
        finished: Sequence[Range] = (),
        *,
        note_bytes_max: int = NOTE_BYTES_MAX,
    ) -> None:
        """`committed`: the group's offset; None: unknown until the first record.

        `finished`: the ranges of the commit's note.
        """
        self.key = key
        self.base = committed
        """The first offset that is not finished."""
        self.next_offset = committed
        """The lowest offset that the next record may have."""
        self.is_current = True
        """False once the partition was revoked: nothing of it is committed any more."""
        self.skipped = 0
        """Records that a note lists as finished."""
        self._note_bytes_max = note_bytes_max
        self._noted = tuple(finished)
        self._inherited = deque(finished)
        self._high = finished[-1][1] if finished else (committed or 0)
        self._within: deque[Entry] = deque()
        self._ahead: deque[Entry] = deque()
        self._unfinished = 0
        """Entries of `_within` that are not finished."""

    @property
    def unfinished(self) -> int:
        """Records fetched but not finished."""
        return self._unfinished + len(self._ahead)

    def was_noted(self, offset: int) -> bool:
        """Return whether the initial note lists an offset as finished."""
        return any(start <= offset < end for start, end in self._noted)

    def take(self, record: Record, size: int, due_ms: float) -> Entry | None:
        """Take the next fetched record; return None if it was finished before."""
        offset = record.offset
        if self.base is None:
            self.base = self._high = offset
        elif self.next_offset is not None and offset < self.next_offset:
            return None  # it is or was in the window already
        self.next_offset = offset + 1
        entry = Entry(record, size, due_ms)
        if offset >= self._high:
            self._ahead.append(entry)
            return entry
        self._within.append(entry)
        if self._was_finished(offset):
            self.skipped += 1
            entry.is_finished = True
            self._slide()
            return None
        self._unfinished += 1
        return entry

    def may_start(self, entry: Entry) -> bool:
        """Return whether the note is sure to fit after this start, whatever finishes next."""
        assert self.base is not None
        if self._head() is entry:
            return True  # the next to be committed: it cannot leave a gap
        span = max(self._high, entry.offset + 1) - self.base
        if note_bytes_at_most(span, span) <= self._note_bytes_max:
            return True
        unfinished = self._unfinished + len(self._inherited)
        if note_bytes_at_most(unfinished, span) > self._note_bytes_max:
            return False
        if entry.offset < self._high:
            return True
        for ahead in self._ahead:
            if ahead.offset > entry.offset:
                break
            unfinished += 1
        return note_bytes_at_most(unfinished, span) <= self._note_bytes_max

    def start(self, entry: Entry) -> None:
        """Record that an entry has started; from now on, it may finish before earlier entries."""
        if entry.offset < self._high:
            return
        while self._ahead and self._ahead[0].offset <= entry.offset:
            self._within.append(self._ahead.popleft())
            self._unfinished += 1
        self._high = entry.offset + 1

    def finish(self, entry: Entry) -> None:
        """Record that a started entry is finished."""
        assert not entry.is_finished, "a record is finished once"
        assert entry.offset < self._high, "what is finished was started"
        entry.is_finished = True
        self._unfinished -= 1
        self._slide()

    def commit_point(self) -> tuple[int, str] | None:
        """Return the first unfinished offset, and the note of finished records beyond it.

        Returns None if the offset is unknown, or if the note would not fit: then the last commit
        stays.
        """
        if self.base is None:
            return None
        note = encode_note(self.key, self.base, self._finished_ranges())
        return None if len(note) > self._note_bytes_max else (self.base, note)

    def _head(self) -> Entry | None:
        """Return the first record that is not finished."""
        if self._within:
            return self._within[0]
        return self._ahead[0] if self._ahead else None

    def _was_finished(self, offset: int) -> bool:
        """Return whether the initial note lists this offset, which is the next one, as finished."""
        inherited = self._inherited
        while inherited and inherited[0][1] <= offset:
            inherited.popleft()
        return bool(inherited) and inherited[0][0] <= offset

    def _slide(self) -> None:
        """Drop finished entries at the front."""
        within = self._within
        while within and within[0].is_finished:
            self.base = within.popleft().offset + 1

    def _finished_ranges(self) -> Iterator[Range]:
        """Yield the finished ranges above `base`."""
        start = end = -1
        for entry in self._within:
            if entry.is_finished:
                start = entry.offset if start < 0 else start
                end = entry.offset + 1
            elif start >= 0:
                yield start, end
                start = -1
        if start >= 0:
            yield start, end
        position = self.next_offset or 0
        for start, end in self._inherited:
            if end > position:
                yield max(start, position), end
