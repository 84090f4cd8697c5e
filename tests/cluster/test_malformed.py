"""Malformed frames sent to a live gateway do no harm."""

import os
import random

import pytest

from tests.cluster.frames import KINDS, Frame, batch, frames, record, uvarint, varint
from tests.cluster.malformed import SHIELDED, actor_processes, run

FRAMES = int(os.environ.get("RAYLOG_MALFORMED_FRAMES", "800"))


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(120 + FRAMES // 20)
def test_processes_live_memory_stays_good_clients_go_on() -> None:
    with SHIELDED.run() as peer:
        report = run(peer, FRAMES, seed=FRAMES, alive=lambda: actor_processes(peer.data))
    report.check()
    assert sum(sum(outcomes.values()) for outcomes in report.outcomes.values()) == FRAMES
    assert set(report.outcomes) == set(KINDS)


def test_a_seed_determines_the_frames() -> None:
    first, second = frames(5, ["a", "b"]), frames(5, ["a", "b"])
    assert [first.next() for _ in range(300)] == [second.next() for _ in range(300)]


def test_hand_made_frames_are_what_they_claim() -> None:
    assert uvarint(300) == b"\xac\x02"
    assert [varint(n) for n in (0, -1, 1, -64, 64)] == [
        b"\0",
        b"\x01",
        b"\x02",
        b"\x7f",
        b"\x80\x01",
    ]
    whole = Frame("sound", KINDS["sound"][1](random.Random(1), "t"))
    assert whole.is_whole
    assert not Frame("cut", whole.data[:-1]).is_whole
    assert len(batch(record(b"abc"))) == 61 + 10
