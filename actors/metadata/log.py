"""The metadata log on disk: one file of frames, and a snapshot that stands for its beginning.

| file         | contents                                                                   |
|--------------|----------------------------------------------------------------------------|
| `log`        | frames: promises of epochs to controllers, entries, cuts of entries before |
| `snapshot`   | one frame `[offset, epoch, count]`, then `count` frames of one record each |
| `*.new`      | either of them being written; renamed when complete                        |
| `unflushed`  | nothing: a sync failed, the log is written anew when it is opened          |

A frame is length of the payload (u32), CRC-32 of all that follows (u32), how much of the file was
synced when it was written (u64), payload (msgpack). An entry holds the records of one decision, so
that they are there together or not at all. Frames that a crash kept from the disk, wholly or in
part, are cut away when the log is opened. A broken frame below what a later frame knows to have
been synced is no torn tail but damage, and is refused.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from raylog.actors.metadata.records import (
    VERSION,
    MetadataCorrupt,
    Voters,
    newest_version,
    voters_in,
)
from raylog.actors.plain import message
from raylog.storage.disk import Disk, remove, sync_names_anew
from raylog.storage.layout import UNFLUSHED_FILE
from raylog.storage.rewriting import note_if_possible
from raylog.wire.errors import KafkaStorageError

_FRAME = struct.Struct(">IIQ")
_PROMISE = 0
_ENTRY = 1
_CUT = 2
_READ_BYTES = 1024 * 1024


@message
@dataclass(frozen=True, slots=True)
class LogEntry:
    """Encoded records that were appended together."""

    offset: int
    """Of its first record."""
    epoch: int
    """The controller epoch that wrote it."""
    records: tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        """Offset after its last record."""
        return self.offset + len(self.records)


@message
@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """Encoded records that stand for everything below `offset`."""

    offset: int
    epoch: int
    """Of the last entry it stands for."""
    records: tuple[bytes, ...]


class MetadataLog:
    """One copy of the metadata log. Writes are durable once `sync` returned."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self.promised_epoch = 0
        self.promised_controller = ""
        self.snapshot = LogSnapshot(0, 0, ())
        self.entries: list[LogEntry] = []
        self._end = 0
        self._synced_bytes = 0
        self._names_are_durable = False
        disk.mkdir(str(directory))
        self._load_snapshot()
        self._fd = disk.open(str(directory / "log"), create=True)
        self._load_log()
        if UNFLUSHED_FILE in disk.listdir(str(directory)):
            self._write_anew()
        self._named: list[tuple[int, Voters]] = []
        """(offset of the entry, -1 for the snapshot; voter set that it names), the latest last."""
        self._find_voters()

    @property
    def voters(self) -> Voters:
        """The voter set that this copy names last, committed or not; empty if it names none."""
        return self._named[-1][1] if self._named else ()

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.entries[-1].next_offset if self.entries else self.snapshot.offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry."""
        return self.entries[-1].epoch if self.entries else self.snapshot.epoch

    @property
    def size_bytes(self) -> int:
        """Length of the log file."""
        return self._end

    def promise(self, epoch: int, controller: str = "") -> None:
        """Refuse epochs lower than this controller's from now on.

        The same epoch comes again with the name of who has won it.
        """
        assert epoch >= self.promised_epoch, "a promised epoch never falls"
        self._write([msgpack.packb([_PROMISE, epoch, controller])])
        self.promised_epoch, self.promised_controller = epoch, controller

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Write entries at the end."""
        at = self.next_offset
        for entry in entries:
            assert entry.offset == at, "an entry begins where the last one ended"
            at = entry.next_offset
        self._write(
            [msgpack.packb([_ENTRY, one.offset, one.epoch, one.records]) for one in entries]
        )
        self.entries.extend(entries)
        self._note_voters(entries)

    def epoch_before(self, offset: int) -> int | None:
        """Epoch of the entry that ends at `offset`; None if no entry does."""
        if offset == self.snapshot.offset:
            return self.snapshot.epoch
        at = self._index_of(offset) - 1
        if at < 0 or self.entries[at].next_offset != offset:
            return None
        return self.entries[at].epoch

    def cut(self, offset: int) -> None:
        """Drop the entries from `offset` on, where an entry begins.

        The file keeps them and a frame that says so: a promise that stands behind them must not
        be lost, whatever order the disk writes in.
        """
        at = self._index_of(offset)
        if at < len(self.entries):
            self._write([msgpack.packb([_CUT, offset])])
            del self.entries[at:]
            while self._named and self._named[-1][0] >= offset:
                self._named.pop()

    def read(self, offset: int, max_bytes: int) -> list[LogEntry]:
        """Entries from `offset` on, at least one if there is any."""
        found = []
        for entry in self.entries[self._index_of(offset) :]:
            found.append(entry)
            max_bytes -= sum(map(len, entry.records))
            if max_bytes <= 0:
                break
        return found

    def sync(self) -> None:
        """Make everything written durable, the file's name included. Blocking.

        OSError: then what was written may be in memory only, whatever a later call says.
        """
        end = self._end
        with self._noting_failures():
            self._disk.fdatasync(self._fd)
            self._synced_bytes = end
            if not self._names_are_durable:
                self._disk.fsync_dir(str(self._directory))
                self._disk.fsync_dir(str(self._directory.parent))
                self._names_are_durable = True

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """After a failure to make something durable whoever opens the log next writes it anew."""
        try:
            yield
        except OSError:
            note_if_possible(self._disk, str(self._directory))
            raise

    def write_snapshot(self, snapshot: LogSnapshot) -> None:
        """Write and sync a snapshot's file beside the one in use, for `put_in_place`.

        Blocking, and the longest part of an install. The log may be written meanwhile; another
        snapshot may not.
        """
        header = msgpack.packb([snapshot.offset, snapshot.epoch, len(snapshot.records)])
        with self._noting_failures():
            self._disk.close(self._write_new("snapshot", [header, *snapshot.records]))

    def prepare_install(self, snapshot: LogSnapshot) -> int:
        """Write a snapshot and put it in place."""
        self.write_snapshot(snapshot)
        return self.put_in_place(snapshot)

    def put_in_place(self, snapshot: LogSnapshot) -> int:
        """Put a written snapshot, and a log of what follows it, in place of the old files.

        Blocking: it syncs. Changes nothing in memory, so that it can run beside the event loop;
        nothing may be written between it and `finish_install`, which takes the descriptor.
        """
        with self._noting_failures():
            self._rename_new("snapshot")
            return self._replace("log", self._frames_after(snapshot))

    def _frames_after(self, snapshot: LogSnapshot) -> list[bytes]:
        frames = [msgpack.packb([_PROMISE, self.promised_epoch, self.promised_controller])]
        frames += [
            msgpack.packb([_ENTRY, one.offset, one.epoch, one.records])
            for one in self._entries_after(snapshot)
        ]
        return frames

    def finish_install(self, snapshot: LogSnapshot, fd: int) -> None:
        """Go on with the files of `prepare_install`."""
        self._disk.close(self._fd)
        self._fd = fd
        self.entries = self._entries_after(snapshot)
        self.snapshot = snapshot
        self._end = self._synced_bytes = self._disk.size(fd)
        self._find_voters()

    def _find_voters(self) -> None:
        """Look through all there is for voter sets."""
        voters = voters_in(self.snapshot.records)
        self._named = [] if voters is None else [(-1, voters)]
        self._note_voters(self.entries)

    def _note_voters(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            voters = voters_in(entry.records)
            if voters is not None:
                self._named.append((entry.offset, voters))

    def _entries_after(self, snapshot: LogSnapshot) -> list[LogEntry]:
        """What stays beside a snapshot: the entries behind it if this log agrees with it there.

        Where it does not, what follows is of a controller that lost: beside the snapshot it would
        make the log look older than it is.
        """
        at = self._index_of(snapshot.offset)
        before = self.entries[at - 1] if at else self.snapshot
        agrees = (before.epoch, _end_of(before)) == (snapshot.epoch, snapshot.offset)
        return self.entries[at:] if agrees else []

    def _write_anew(self) -> None:
        """Put copies of what was read in place of files that may be in memory only."""
        if self.snapshot.offset:
            self.write_snapshot(self.snapshot)
            self._rename_new("snapshot")
        payloads = [payload for payload, _ in _frames(_contents(self._disk, self._fd))]
        fd = self._replace("log", payloads)
        self._disk.close(self._fd)
        self._fd = fd
        self._end = self._synced_bytes = self._disk.size(fd)
        sync_names_anew(self._disk, str(self._directory.parent))
        remove(self._disk, str(self._directory / UNFLUSHED_FILE))

    def close(self) -> None:
        """Give the descriptor back."""
        self._disk.close(self._fd)

    def _index_of(self, offset: int) -> int:
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _write(self, payloads: Sequence[bytes]) -> None:
        """Write frames at the end. A short write is cut back."""
        data = b"".join(_framed(payload, self._synced_bytes) for payload in payloads)
        try:
            written = self._disk.pwritev(self._fd, [data], self._end)
        except OSError as failure:
            raise KafkaStorageError(f"the metadata log cannot be written: {failure}") from failure
        if written != len(data):
            self._disk.ftruncate(self._fd, self._end)
            raise KafkaStorageError("the disk that holds the metadata log is full")
        self._end += len(data)

    def _replace(self, name: str, payloads: Sequence[bytes]) -> int:
        """Write a whole file anew and put it in place; returns its descriptor."""
        fd = self._write_new(name, payloads)
        try:
            self._rename_new(name)
        except OSError:
            self._disk.close(fd)
            raise
        return fd

    def _write_new(self, name: str, payloads: Sequence[bytes]) -> int:
        """Write and sync what is to take a file's place; returns its descriptor."""
        fd = self._disk.open(str(self._directory / f"{name}.new"), create=True)
        try:
            self._disk.ftruncate(fd, 0)
            self._write_whole(fd, b"".join(_framed(payload, 0) for payload in payloads))
            self._disk.fdatasync(fd)
        except OSError:
            self._disk.close(fd)
            raise
        return fd

    def _rename_new(self, name: str) -> None:
        path = str(self._directory / name)
        self._disk.rename(f"{path}.new", path)
        self._disk.fsync_dir(str(self._directory))

    def _write_whole(self, fd: int, data: bytes) -> None:
        if self._disk.pwritev(fd, [data], 0) != len(data):
            raise OSError(errno.ENOSPC, "the disk that holds the metadata log is full")

    def _load_snapshot(self) -> None:
        if "snapshot" not in self._disk.listdir(str(self._directory)):
            return
        fd = self._disk.open(str(self._directory / "snapshot"))
        try:
            payloads = [payload for payload, _ in _frames(_contents(self._disk, fd))]
        finally:
            self._disk.close(fd)
        if not payloads:
            raise MetadataCorrupt(f"{self._directory}/snapshot has no header")
        offset, epoch, count = _unpacked(payloads[0])
        if len(payloads) != count + 1:
            raise MetadataCorrupt(f"{self._directory}/snapshot holds {len(payloads)} of {count}")
        self.snapshot = LogSnapshot(offset, epoch, tuple(payloads[1:]))
        self._require_known("snapshot", self.snapshot.records)

    def _require_known(self, name: str, records: Sequence[bytes]) -> None:
        """Refuse what a newer build has written: this one would take it for less than it says."""
        version = newest_version(records)
        if version > VERSION:
            raise KafkaStorageError(
                f"{self._directory / name} has records of version {version}, this build knows "
                f"{VERSION}"
            )

    def _load_log(self) -> None:
        data = _contents(self._disk, self._fd)
        self.entries, self._end = [], 0
        for payload, position in _frames(data):
            self._load_frame(_unpacked(payload))
            self._end = position + _FRAME.size + len(payload)
        if self._end < len(data):
            self._disk.ftruncate(self._fd, self._end)
        if self.entries and self.entries[0].offset != self.snapshot.offset:
            self.entries = self._entries_after(self.snapshot)

    def _load_frame(self, values: list[Any]) -> None:
        if values[0] == _PROMISE:
            self.promised_epoch, *name = values[1:]
            self.promised_controller = name[0] if name else ""
            return
        if values[0] == _CUT:
            del self.entries[self._index_of(values[1]) :]
            return
        entry = LogEntry(values[1], values[2], tuple(values[3]))
        self._require_known("log", entry.records)
        expected = self.next_offset if self.entries else min(entry.offset, self.snapshot.offset)
        if entry.offset != expected:
            if entry.offset != self.snapshot.offset:
                raise MetadataCorrupt(
                    f"{self._directory}/log goes on at {entry.offset} after {expected}"
                )
            self.entries = []  # behind a snapshot that was put in place when the log differed
        self.entries.append(entry)


def _end_of(part: LogEntry | LogSnapshot) -> int:
    return part.next_offset if isinstance(part, LogEntry) else part.offset


def _framed(payload: bytes, synced_bytes: int) -> bytes:
    synced = synced_bytes.to_bytes(8, "big")
    return (
        _FRAME.pack(len(payload), zlib.crc32(payload, zlib.crc32(synced)), synced_bytes) + payload
    )


def _contents(disk: Disk, fd: int) -> bytes:
    size, chunks, at = disk.size(fd), [], 0
    while at < size:
        chunk = disk.pread(fd, min(_READ_BYTES, size - at), at)
        if not chunk:
            break
        chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks)


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Whole frames with their positions, up to a torn tail."""
    at = 0
    while (payload := _frame_at(data, at)) is not None:
        yield payload, at
        at += _FRAME.size + len(payload)
    _check_tail(data, at)


def _check_tail(data: bytes, at: int) -> None:
    """Raise MetadataCorrupt if the frame at a position was whole once, by what a later one says."""
    later = at + 1
    while (later := data.find(b"\0", later)) != -1:
        if _frame_at(data, later) is not None and _FRAME.unpack_from(data, later)[2] > at:
            raise MetadataCorrupt(f"the metadata log is damaged at byte {at}")
        later += 1


def _frame_at(data: bytes, at: int) -> bytes | None:
    """The payload of the frame at a position; None if there is no whole, sound one."""
    if len(data) - at < _FRAME.size:
        return None
    length, crc, synced_bytes = _FRAME.unpack_from(data, at)
    payload = data[at + _FRAME.size : at + _FRAME.size + length]
    if not length or len(payload) != length:
        return None
    synced = synced_bytes.to_bytes(8, "big")
    return payload if zlib.crc32(payload, zlib.crc32(synced)) == crc else None


def _unpacked(payload: bytes) -> list[Any]:
    values: list[Any] = msgpack.unpackb(payload, use_list=True)
    return values
