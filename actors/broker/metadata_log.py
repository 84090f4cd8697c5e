"""The metadata log on disk: one file of frames, and a snapshot that replaces its beginning.

| file         | contents                                                                   |
|--------------|----------------------------------------------------------------------------|
| `log`        | frames: promises of epochs to controllers, entries, truncations of entries |
| `snapshot`   | one frame `[offset, epoch, count]`, then `count` frames of one record each |
| `*.new`      | one of the two while it is written; renamed when complete                  |
| `unflushed`  | empty: a sync failed, so the next process to open the log rewrites it      |

A frame is: length of the payload (u32), CRC-32 of all that follows (u32), the size of the synced
part of the file when the frame was written (u64), payload (msgpack). An entry holds the records of
one decision, so a crash leaves all of them or none. Opening the log cuts off frames that a crash
kept from the disk, wholly or in part. A broken frame below what a later frame knows to be synced
is not a torn tail but damage, and is refused.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack

from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.log_copy import Append, Change, LogCopy, Promise, Truncate
from raylog.actors.metadata.records import VERSION, MetadataCorrupt, newest_version
from raylog.storage.disk import Disk, remove, sync_names_anew
from raylog.storage.layout import UNFLUSHED_FILE
from raylog.storage.rewriting import note_if_possible
from raylog.wire.errors import KafkaStorageError

_FRAME = struct.Struct(">IIQ")
_PROMISE = 0
_ENTRY = 1
_CUT = 2
_READ_BYTES = 1024 * 1024


class MetadataLog:
    """One copy of the metadata log. What was written is durable once `sync` returns."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self.copy = LogCopy()
        """The written contents, in memory."""
        self._end = 0
        self._synced_bytes = 0
        self._names_are_durable = False
        disk.mkdir(str(directory))
        self._load_snapshot()
        self._fd = disk.open(str(directory / "log"), create=True)
        self._load_log()
        if UNFLUSHED_FILE in disk.listdir(str(directory)):
            self._write_anew()
        self.copy.find_voters()

    @property
    def size_bytes(self) -> int:
        """The length of the log file."""
        return self._end

    def write(self, changes: Sequence[Change]) -> None:
        """Append changes to the file and apply them to the copy: all of them or none.

        Truncated entries stay in the file, followed by a frame that says so: a promise between them
        must not be lost, in whatever order the disk writes.
        """
        if changes:
            self._write([payload for change in changes for payload in _payloads(change)])
        for change in changes:
            self.copy.apply(change)

    def sync(self) -> None:
        """Make everything written durable, including the file's name. Blocking.

        After an OSError, written data may be in memory only, even if a later call succeeds.
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
        """If a sync fails, leave the note that makes the next open rewrite the log."""
        try:
            yield
        except OSError:
            note_if_possible(self._disk, str(self._directory))
            raise

    def write_snapshot(self, snapshot: LogSnapshot) -> None:
        """Write and sync a snapshot's file beside the current one, for `put_in_place`.

        Blocking, and the longest part of an install. Meanwhile the log may be written, but no other
        snapshot.
        """
        header = msgpack.packb([snapshot.offset, snapshot.epoch, len(snapshot.records)])
        with self._noting_failures():
            self._disk.close(self._write_new("snapshot", [header, *snapshot.records]))

    def prepare_install(self, snapshot: LogSnapshot) -> int:
        """Write a snapshot and put it in place; return the new log's descriptor."""
        self.write_snapshot(snapshot)
        return self.put_in_place(snapshot)

    def put_in_place(self, snapshot: LogSnapshot) -> int:
        """Replace the files by a written snapshot and a log of what follows it.

        Blocking: it syncs. It changes nothing in memory, so it can run beside the event loop.
        Nothing may be written between it and `finish_install`, which takes the returned descriptor.
        """
        with self._noting_failures():
            self._rename_new("snapshot")
            return self._replace("log", self._frames_after(snapshot))

    def _frames_after(self, snapshot: LogSnapshot) -> list[bytes]:
        promise = Promise(self.copy.promised_epoch, self.copy.promised_controller)
        kept = Append(tuple(self.copy.entries_after(snapshot)))
        return [*_payloads(promise), *_payloads(kept)]

    def finish_install(self, snapshot: LogSnapshot, fd: int) -> None:
        """Switch to the files that `put_in_place` has written."""
        self._disk.close(self._fd)
        self._fd = fd
        self.copy.replace(snapshot)
        self._end = self._synced_bytes = self._disk.size(fd)

    def _write_anew(self) -> None:
        """Rewrite everything that was read, because the files may exist in memory only."""
        if self.copy.snapshot.offset:
            self.write_snapshot(self.copy.snapshot)
            self._rename_new("snapshot")
        payloads = [payload for payload, _ in _frames(_contents(self._disk, self._fd))]
        fd = self._replace("log", payloads)
        self._disk.close(self._fd)
        self._fd = fd
        self._end = self._synced_bytes = self._disk.size(fd)
        sync_names_anew(self._disk, str(self._directory.parent))
        remove(self._disk, str(self._directory / UNFLUSHED_FILE))

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)

    def _write(self, payloads: Sequence[bytes]) -> None:
        """Append frames. A short write is truncated."""
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
        """Write a new file and put it in place; return its descriptor."""
        fd = self._write_new(name, payloads)
        try:
            self._rename_new(name)
        except OSError:
            self._disk.close(fd)
            raise
        return fd

    def _write_new(self, name: str, payloads: Sequence[bytes]) -> int:
        """Write and sync the `.new` file; return its descriptor."""
        fd = self._disk.open(str(self._directory / f"{name}.new"), create=True)
        try:
            self._disk.ftruncate(fd, 0)
            self._write_whole(fd, b"".join(_framed(payload, 0) for payload in payloads))
            self._disk.fdatasync(fd)
        except OSError:
            self._disk.close(fd)
            remove(self._disk, str(self._directory / f"{name}.new"))
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
        self.copy.snapshot = LogSnapshot(offset, epoch, tuple(payloads[1:]))
        self._require_known("snapshot", self.copy.snapshot.records)

    def _require_known(self, name: str, records: Sequence[bytes]) -> None:
        """Refuse records of a newer build, which this one would misread."""
        version = newest_version(records)
        if version > VERSION:
            raise KafkaStorageError(
                f"{self._directory / name} has records of version {version}, this build knows "
                f"{VERSION}"
            )

    def _load_log(self) -> None:
        data = _contents(self._disk, self._fd)
        copy, self._end = self.copy, 0
        for payload, position in _frames(data):
            self._load_frame(_unpacked(payload))
            self._end = position + _FRAME.size + len(payload)
        if self._end < len(data):
            self._disk.ftruncate(self._fd, self._end)
        if copy.entries and copy.entries[0].offset != copy.snapshot.offset:
            copy.entries = copy.entries_after(copy.snapshot)

    def _load_frame(self, values: list[Any]) -> None:
        copy = self.copy
        if values[0] == _PROMISE:
            copy.promised_epoch, *name = values[1:]
            copy.promised_controller = name[0] if name else ""
            return
        if values[0] == _CUT:
            del copy.entries[copy.index_of(values[1]) :]
            return
        entry = LogEntry(values[1], values[2], tuple(values[3]))
        self._require_known("log", entry.records)
        first = copy.snapshot.offset
        expected = copy.next_offset if copy.entries else min(entry.offset, first)
        if entry.offset != expected:
            if entry.offset != first:
                raise MetadataCorrupt(
                    f"{self._directory}/log goes on at {entry.offset} after {expected}"
                )
            copy.entries = []  # after a snapshot was installed over a diverging log
        copy.entries.append(entry)


def _payloads(change: Change) -> list[bytes]:
    """Encode the frames of a change."""
    match change:
        case Promise(epoch, controller):
            return [msgpack.packb([_PROMISE, epoch, controller])]
        case Append(entries):
            return [msgpack.packb([_ENTRY, one.offset, one.epoch, one.records]) for one in entries]
        case Truncate(offset):
            return [msgpack.packb([_CUT, offset])]


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
    """Yield all whole frames with their positions, up to a torn tail."""
    at = 0
    while (payload := _frame_at(data, at)) is not None:
        yield payload, at
        at += _FRAME.size + len(payload)
    _check_tail(data, at)


def _check_tail(data: bytes, at: int) -> None:
    """Raise MetadataCorrupt if a later frame says that the frame at this position was synced."""
    later = at + 1
    while (later := data.find(b"\0", later)) != -1:
        if _frame_at(data, later) is not None and _FRAME.unpack_from(data, later)[2] > at:
            raise MetadataCorrupt(f"the metadata log is damaged at byte {at}")
        later += 1


def _frame_at(data: bytes, at: int) -> bytes | None:
    """Return the payload of the frame at a position; None if it is torn or damaged."""
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
