"""An actor that Ray restarts knows the number of its earlier starts."""

import os
import time
from pathlib import Path

import pytest

from raylog.actors.backoff import FIRST_MS, LOSSES_AT_ONCE
from raylog.actors.runtime.restarts import Restarts

NAME = "c/broker/0/0"


def begin(directory: Path, now_ms: float, spawned: str = "one", name: str = NAME) -> int:
    """A new process starts."""
    return Restarts(directory, name, spawned).begin(now_ms)


def test_each_process_counts_those_before_it(tmp_path: Path) -> None:
    directory = tmp_path / "starts"
    delays = [begin(directory, 100 + at) for at in range(LOSSES_AT_ONCE + 2)]
    assert delays == [0] * (LOSSES_AT_ONCE + 1) + [FIRST_MS]
    assert begin(directory, 200, name="c/controller") == 0, "another actor"


def test_a_name_that_is_spawned_anew_begins_anew(tmp_path: Path) -> None:
    for at in range(LOSSES_AT_ONCE + 2):
        begin(tmp_path, at)
    assert begin(tmp_path, 100, spawned="two") == 0
    assert begin(tmp_path, 101, spawned="two") == 0


def test_the_next_process_knows_why_the_last_one_ended(tmp_path: Path) -> None:
    first = Restarts(tmp_path, NAME, "one")
    first.begin(0)
    first.ends("the port is taken")
    second = Restarts(tmp_path, NAME, "one")
    second.begin(1)
    assert second.reason == "the port is taken"
    third = Restarts(tmp_path, NAME, "one")
    third.begin(2)
    assert third.reason == "", "it was killed"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"spawned": "one"}', '"\\ud800"'])
def test_a_damaged_file_costs_the_waits_only(tmp_path: Path, content: str) -> None:
    begin(tmp_path, 0)
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    assert begin(tmp_path, 1) == 0
    assert begin(tmp_path, 2) == 0


def test_process_starts_at_once_if_the_restart_note_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "starts").write_text("a file in the way")
    restarts = Restarts(tmp_path / "starts", NAME, "one")
    assert restarts.begin(0) == 0
    restarts.ends("x")


def test_files_of_names_that_never_come_back_do_not_gather(tmp_path: Path) -> None:
    begin(tmp_path, 0, name="c/controller/0.1")
    (old,) = tmp_path.iterdir()
    long_ago = time.time() - 86_400
    os.utime(old, (long_ago, long_ago))
    begin(tmp_path, 0)
    assert not old.exists()
