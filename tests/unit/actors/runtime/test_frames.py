"""Link frames: incomplete ones give nothing, returned bytes stay, bad ones are DecodeErrors."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.runtime.frames import (
    FIRST_CHUNK_BYTES,
    FRAME_BYTES_MAX,
    PROMISED_BYTES_MAX,
    Frame,
    ReceiveBuffer,
    frame,
    take_frames,
)
from raylog.wire.errors import DecodeError, EncodeError
from tests.fuzz.processes import private_bytes


def received(buffer: ReceiveBuffer, data: bytes, needed: int = 4) -> None:
    while data:
        room = buffer.writable(needed)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        buffer.received(count)
        data = data[count:]


def encoded(head: list[object], *payload: bytes) -> bytes:
    return b"".join(bytes(part) for part in frame(head, payload))


def test_a_frame_is_taken_only_when_whole() -> None:
    buffer = ReceiveBuffer(64)
    data = encoded([7, "produce", [1, 2]], b"abc", b"def")
    for byte in data[:-1]:
        received(buffer, bytes([byte]), len(data))
        assert list(take_frames(buffer)) == []
    received(buffer, data[-1:])
    [(head, payload)] = take_frames(buffer)
    assert head == [7, "produce", [1, 2]]
    assert bytes(payload) == b"abcdef"


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 97))
def test_frames_survive_any_cutting_and_stay_as_they_were(bodies: list[bytes], step: int) -> None:
    stream = b"".join(encoded([i, "k", None], body) for i, body in enumerate(bodies))
    buffer = ReceiveBuffer(128)
    found: list[Frame] = []
    for at in range(0, len(stream), step):
        received(buffer, stream[at : at + step], 512)
        found += take_frames(buffer)
    assert [(head[0], bytes(payload)) for head, payload in found] == list(enumerate(bodies))


def test_handed_out_bytes_are_not_overwritten_by_what_follows() -> None:
    buffer = ReceiveBuffer(64)
    received(buffer, encoded([1, "k", None], b"first"))
    [(_, first)] = take_frames(buffer)
    for _ in range(10):
        received(buffer, encoded([2, "k", None], b"x" * 40), 64)
        list(take_frames(buffer))
    assert bytes(first) == b"first"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\0\0\0\x01\0",
        b"\0\0\0\x05\0\0\0\xff\x90",
        b"\0\0\0\x05\0\0\0\x01\xc1",
        b"\0\0\0\x05\0\0\0\x01\x90",
    ],
    ids=["negative", "too long", "too short", "head past the end", "no msgpack", "no list"],
)
def test_lies_are_decode_errors(data: bytes) -> None:
    buffer = ReceiveBuffer(64)
    received(buffer, data)
    with pytest.raises(DecodeError):
        list(take_frames(buffer))


def test_a_promise_of_much_is_given_room_only_as_bytes_arrive() -> None:
    buffer = ReceiveBuffer(64)
    needed = 20 * PROMISED_BYTES_MAX
    rooms = []
    for _ in range(40):
        room = buffer.writable(needed)
        rooms.append(len(room))
        buffer.received(min(len(room), 1 << 20))
    assert buffer.unread == 40 << 20
    assert rooms[0] == PROMISED_BYTES_MAX
    assert rooms[4] == needed - PROMISED_BYTES_MAX, "whoever sends as much means it"


def test_promises_take_no_memory() -> None:
    """A thousand connections may each promise 100 MiB, and send a few bytes of it."""
    before = private_bytes(os.getpid())
    buffers = [ReceiveBuffer(256 << 10) for _ in range(50)]
    for buffer in buffers:
        buffer.writable(100 << 20)[:8] = b"\x06\x40\0\0\0\0\0\x0b"
        buffer.received(8)
        buffer.writable(100 << 20)
    assert private_bytes(os.getpid()) - before < 2 << 20


def test_a_large_frame_takes_its_own_size() -> None:
    size = 64 << 20
    part = b"x" * (1 << 20)
    buffer = ReceiveBuffer(256 << 10)
    before = private_bytes(os.getpid())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    resident = _memory("VmHWM")
    while buffer.unread < size:
        room = buffer.writable(size)
        count = min(len(room), len(part), size - buffer.unread)
        room[:count] = part[:count]
        buffer.received(count)
    assert _memory("VmHWM") - resident < size + (6 << 20)
    assert private_bytes(os.getpid()) - before > size - (1 << 20)
    assert buffer.take(size) == part * 64


def _memory(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1_024


def test_a_kernel_without_huge_pages_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Old)
    assert len(ReceiveBuffer().writable(2 << 20)) == 2 << 20


def test_chunks_are_small_where_little_comes_at_a_time() -> None:
    """A part of one that is kept, such as a request that waits, keeps all of it."""
    buffer = ReceiveBuffer(256 << 10)
    sizes = set()
    for _ in range(10_000):
        received(buffer, b"r" * 100)
        buffer.take(100)
        sizes.add(len(buffer._chunk))
    assert max(sizes) == FIRST_CHUNK_BYTES
    for _ in range(200):
        room = buffer.writable(4)
        buffer.received(len(room))
        buffer.take(buffer.unread)
    assert len(buffer._chunk) == 256 << 10


def test_a_frame_over_the_limit_is_not_sent() -> None:
    with pytest.raises(EncodeError, match="at most"):
        frame([1, "k", None], [memoryview(bytes(1)).cast("B")] * 0 + [bytes(FRAME_BYTES_MAX)])


def test_a_buffer_that_rests_keeps_no_memory() -> None:
    buffer = ReceiveBuffer()
    for size in (5, 100_000, 300_000):
        sent = bytes([size % 251]) * size
        at = 0
        while at < size:
            room = buffer.writable(size)
            count = min(len(room), size - at)
            room[:count] = sent[at : at + count]
            buffer.received(count)
            at += count
        kept = buffer.take(size - 1)
        buffer.release()
        assert buffer.unread == 1, "what is unread stays"
        assert bytes(buffer.take(1)) == sent[-1:]
        buffer.release()
        assert sys.getsizeof(buffer._chunk) < 100
        assert bytes(kept) == sent[:-1], "what was handed out stays"
