"""Small files that are replaced as a whole: state, high watermark, cleaner, producer snapshots.

| bytes | what |
|---|---|
| 4 | magic `RLCP` |
| 2, 2 | kind of file, version of its contents |
| 4, 4 | length of the contents, CRC-32C of the contents or of everything before and them |
| rest | contents, msgpack |

A file is written under a temporary name and renamed. For files that must not be lost, the file is
synced before the rename and the directory after it. The high watermark may be lost; it is then
assumed to be the log start.

Every version ever written can be read. An intact file of a later version was written by a newer
build and is refused with an error that names the version (`NewerVersion`): treating it as damaged
would undo what it says. The log is not opened then. In the versions of the first column the
checksum covers only the contents; in all later ones it also covers the version, so that a flipped
bit cannot change the version.

| kind | contents only | |
|---|---|---|
| state | 1 | 2 records which timestamps are claims (`correcting.py`); in 1 all are |
| producers | 1 | |
| high watermark | 1, 2 | 1 is the number alone; 2 adds log end and boot id |
| cleaner | 1 | |
"""

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from raylog.storage.disk import Disk, opened, write_fully
from raylog.storage.epochs import EpochStart
from raylog.storage.layout import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    STATE_FILE,
    TEMPORARY_SUFFIX,
)
from raylog.wire.errors import KafkaStorageError

_MAGIC = b"RLCP"
_HEAD = struct.Struct(">4sHHII")
_CRC = struct.Struct(">I")
_CHUNK = 1024 * 1024

STATE_KIND = 1
PRODUCERS_KIND = 2
HIGH_WATERMARK_KIND = 3
CLEANER_KIND = 4
STATE_VERSION = 2
_HIGH_WATERMARK_VERSION = 2
_CLEANER_VERSION = 1
_CONTENTS_ONLY = {STATE_KIND: 1, PRODUCERS_KIND: 1, HIGH_WATERMARK_KIND: 2, CLEANER_KIND: 1}
"""The last version in which the checksum covers only the contents."""
_CRC_AT = 12


def encode(kind: int, version: int, contents: object) -> bytes:
    """Encode a whole file of this kind."""
    return encode_parts(kind, version, [msgpack.packb(contents)])


def encode_parts(kind: int, version: int, parts: list[bytes]) -> bytes:
    """Encode a file whose contents are already packed."""
    body = b"".join(parts)
    head = _HEAD.pack(_MAGIC, kind, version, len(body), 0)[:_CRC_AT]
    return head + _CRC.pack(_crc(kind, version, head, body)) + body


def _crc(kind: int, version: int, head: bytes, body: bytes) -> int:
    covered = b"" if version <= _CONTENTS_ONLY[kind] else head
    return int(crc32c(body, crc32c(covered)))


class NewerVersion(KafkaStorageError):
    """A newer build wrote a file; the message names the file, its version and those known here."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has version {found}, which a newer build wrote; this one knows 1 to {known}"
        )


class Contents(NamedTuple):
    """The contents of a file and their version."""

    version: int
    value: Any


def decode(kind: int, latest: int, data: bytes, path: str) -> Contents | None:
    """Decode a file of this kind, of any version up to `latest`; None if it is damaged.

    Raises NewerVersion for an intact file of a later version.
    """
    if len(data) < _HEAD.size:
        return None
    magic, found_kind, version, length, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if (magic, found_kind) != (_MAGIC, kind) or len(body) != length:
        return None
    if _crc(kind, version, data[:_CRC_AT], body) != crc:
        return None
    if version > latest:
        raise NewerVersion(path, version, latest)
    try:
        return Contents(version, msgpack.unpackb(body, use_list=True, strict_map_key=False))
    except ValueError:
        return None


def read_file(disk: Disk, path: str) -> bytes | None:
    """Read a whole small file; None if there is none."""
    data = bytearray()
    try:
        with opened(disk, path) as fd:
            size = disk.size(fd)
            while len(data) < size:
                chunk = disk.pread(fd, min(size - len(data), _CHUNK), len(data))
                if not chunk:
                    break
                data += chunk
    except FileNotFoundError:
        return None
    return bytes(data)


def check_version(disk: Disk, path: str, kind: int, latest: int) -> None:
    """Raise NewerVersion for an intact file of a later version; otherwise read only the head."""
    with opened(disk, path) as fd:
        head = disk.pread(fd, _HEAD.size, 0)
    if len(head) == _HEAD.size and _HEAD.unpack(head)[2] > latest:
        _read(disk, path, kind, latest)


def write_file(disk: Disk, path: str, data: bytes, *, durable: bool) -> None:
    """Replace a file in one step; an OSError leaves the old one. Blocks if `durable`."""
    temporary = path + TEMPORARY_SUFFIX
    with opened(disk, temporary, create=True) as fd:
        disk.ftruncate(fd, 0)
        write_fully(disk, fd, data, 0)
        if durable:
            disk.fdatasync(fd)
    disk.rename(temporary, path)
    if durable:
        disk.fsync_dir(path.rpartition("/")[0])


def _read(disk: Disk, path: str, kind: int, latest: int) -> Contents | None:
    """Contents of a file; None if it is missing or damaged. Raises NewerVersion."""
    data = read_file(disk, path)
    return None if data is None else decode(kind, latest, data, path)


@dataclass(frozen=True, slots=True)
class CleanEnd:
    """What a clean close left: no scan is needed while the last segment still has this length.

    The first append after it lengthens the file, which invalidates the mark. A log in which bytes
    follow the data (after damage or some truncations) gets no mark.
    """

    segment: str  # name of the last segment
    size: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class WrittenPoint:
    """Everything below `offset` was written, perhaps not synced, under the machine's `boot_id`.

    Until the machine restarts, only later data needs a scan, whatever the recovery point.
    """

    offset: int
    boot_id: str


class Claims(NamedTuple):
    """Offsets [start, end) of batches whose largest timestamps are unverified claims of clients."""

    start: int
    end: int

    def within(self, log_start_offset: int, log_end_offset: int) -> "Claims | None":
        """The part inside a log with these bounds; None if empty."""
        start, end = max(self.start, log_start_offset), min(self.end, log_end_offset)
        return Claims(start, end) if start < end else None


ALL_CLAIMS = Claims(0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class LogState:
    """Contents of the `state` file: what the segments do not say.

    Everything below `recovery_point` is durable. A log that ends before `held` lacks records that
    it once had, and must fetch them from other replicas before it counts. `claims` is None once all
    segments of older builds have been checked.
    """

    log_start_offset: int = 0
    recovery_point: int = 0
    generation: int = 0  # the largest that any segment has had
    epochs: list[EpochStart] = field(default_factory=list)
    clean_end: CleanEnd | None = None
    written: WrittenPoint | None = None
    held: int = 0
    claims: Claims | None = None


class StateFile:
    """Reads and writes the `state` file; an older state never replaces a newer one."""

    __slots__ = ("_disk", "_path", "_written")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{STATE_FILE}"
        self._written = 0

    def read(self) -> LogState | None:
        """The last state; None if missing or damaged. Raises NewerVersion."""
        contents = _read(self._disk, self._path, STATE_KIND, STATE_VERSION)
        try:
            return None if contents is None else _state_of(contents)
        except (AttributeError, LookupError, TypeError, ValueError):
            return None  # wrong structure despite a right checksum

    def write(self, state: LogState, number: int) -> None:
        """Make `state` durable unless one with a higher number is. Blocking; may raise OSError."""
        clean_end, written = state.clean_end, state.written
        contents = {
            "log_start_offset": state.log_start_offset,
            "recovery_point": state.recovery_point,
            "generation": state.generation,
            "epochs": [list(entry) for entry in state.epochs],
            "clean_end": clean_end and [clean_end.segment, clean_end.size, clean_end.next_offset],
            "written": written and [written.offset, written.boot_id],
            "held": state.held,
            "claims": state.claims and list(state.claims),
        }
        data = encode(STATE_KIND, STATE_VERSION, contents)
        if number > self._written:
            write_file(self._disk, self._path, data, durable=True)
            self._written = number


def _state_of(file: Contents) -> LogState:
    contents = file.value
    claims = ALL_CLAIMS if file.version == 1 else contents["claims"]
    clean_end, written = contents.get("clean_end"), contents.get("written")
    epochs = [EpochStart(int(epoch), int(start)) for epoch, start in contents["epochs"]]
    if not all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(epochs)):
        raise ValueError("leader epochs rise")
    return LogState(
        log_start_offset=_offset(contents["log_start_offset"]),
        recovery_point=_offset(contents["recovery_point"]),
        generation=_offset(contents["generation"]),
        epochs=epochs,
        clean_end=None if clean_end is None else CleanEnd(*clean_end),
        written=None if written is None else WrittenPoint(_offset(written[0]), str(written[1])),
        held=_offset(contents.get("held", 0)),
        claims=None if claims is None else Claims(_offset(claims[0]), _offset(claims[1])),
    )


def _offset(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


class Reached(NamedTuple):
    """How far a log had got at a checkpoint: a hint, which may be wrong after a power loss.

    While the machine still has `boot_id`, a log that ends before `log_end_offset` was damaged.
    """

    high_watermark: int = 0
    log_end_offset: int = 0
    boot_id: str = ""


class HighWatermarkFile:
    """Reads and writes the `high-watermark` file, which may be out of date or lost."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{HIGH_WATERMARK_FILE}"

    def read(self) -> Reached:
        """The last checkpoint's values; the defaults if the file is missing, damaged or impossible.

        Raises NewerVersion.
        """
        contents = _read(self._disk, self._path, HIGH_WATERMARK_KIND, _HIGH_WATERMARK_VERSION)
        if contents is None:
            return Reached()
        value = contents.value
        try:
            high_watermark, log_end_offset, boot_id = (
                (value, value, "") if contents.version == 1 else value
            )
            found = Reached(_offset(high_watermark), _offset(log_end_offset), str(boot_id))
        except (TypeError, ValueError):
            return Reached()
        return found if found.high_watermark <= found.log_end_offset else Reached()

    def write(self, reached: Reached) -> None:
        """Replace the file without waiting for the disk. May raise OSError."""
        data = encode(HIGH_WATERMARK_KIND, _HIGH_WATERMARK_VERSION, list(reached))
        write_file(self._disk, self._path, data, durable=False)


class Swap(NamedTuple):
    """A cleaned segment that replaces everything from its base offset up to `end_offset`."""

    segment: str
    end_offset: int


@dataclass(frozen=True, slots=True)
class CleanerState:
    """How far a log was cleaned, and which segments replace others: the `cleaner` file.

    A swap is durable before its segment gets its name. So a segment found under that name has
    replaced the others, even if they still exist.
    """

    first_dirty_offset: int = 0  # records before it have been cleaned
    swaps: tuple[Swap, ...] = ()


class CleanerFile:
    """Reads and writes the `cleaner` file; if it is lost, the log is cleaned again."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{CLEANER_FILE}"

    def read(self) -> CleanerState:
        """The last state. Raises NewerVersion."""
        contents = _read(self._disk, self._path, CLEANER_KIND, _CLEANER_VERSION)
        try:
            first_dirty_offset, swaps = (0, ()) if contents is None else contents.value
            found = tuple([Swap(str(segment), _offset(end)) for segment, end in swaps])
            return CleanerState(_offset(first_dirty_offset), found)
        except (TypeError, ValueError):
            return CleanerState()

    def write(self, state: CleanerState) -> None:
        """Make `state` durable. Blocking; an OSError leaves the old one."""
        contents = [state.first_dirty_offset, [list(each) for each in state.swaps]]
        data = encode(CLEANER_KIND, _CLEANER_VERSION, contents)
        write_file(self._disk, self._path, data, durable=True)
