"""What remains of a Ray that failed to start, and where its logs are; no Ray is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raylog.actors.runtime import ray_node
from raylog.actors.runtime.processes import CHILD, is_running, record_of
from raylog.actors.runtime.ray_node import RayNotStarted, RecordDamaged, running_nodes

NO_SPACE = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("failure", "raised"), [(NO_SPACE, OSError), (RuntimeError("timed out"), RayNotStarted)]
)
def test_started_processes_end_when_a_later_start_fails(
    tmp_path: Path, failure: Exception, raised: type[Exception]
) -> None:
    """Also where nothing could be recorded, because the disk is full."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = record_of(CHILD, child.pid)
    assert record is not None
    directory = ray_node._ray_directory(deep(tmp_path))

    def start() -> None:
        with ray_node._ended_on_failure(directory):
            ray_node._children.append(child)
            raise failure

    with pytest.raises(raised, match=str(failure.args[-1])):
        start()
    assert not is_running(record)
    assert child not in ray_node._children
    assert not directory.parent.exists()


def deep(tmp_path: Path) -> Path:
    """A directory whose name leaves no room for those of sockets."""
    run = tmp_path / ("d" * 60) / "run"
    run.mkdir(parents=True)
    return run


def test_logs_are_where_the_data_is_however_long_its_name(tmp_path: Path) -> None:
    run = deep(tmp_path)
    directory = ray_node._ray_directory(run)
    assert len(str(directory)) <= ray_node._SOCKET_PATH_MAX
    session = directory / "session_2026"
    session.mkdir()
    (session / "log").write_text("why it ended")
    (directory / "session_latest").symlink_to(session)
    ray_node._link_latest(directory)
    ray_node._remove_link(directory)
    assert not directory.parent.exists()
    assert (run / "ray" / "session_latest" / "log").read_text() == "why it ended"


def test_logs_are_where_the_data_is_behind_a_link(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "link").symlink_to(run)
    directory = ray_node._ray_directory(tmp_path / "link")
    (directory / "log").write_text("why it ended")
    ray_node._remove_link(directory)
    assert (run / "ray" / "log").read_text() == "why it ended"


def test_two_sessions_are_kept(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "ray" / f"session_{number}").mkdir(parents=True)
    ray_node._remove_link(ray_node._ray_directory(tmp_path))
    assert [path.name for path in (tmp_path / "ray").iterdir()] == ["session_3"]


@pytest.mark.parametrize("contents", ["", "[]", "{}", '{"processes": []}'])
def test_a_record_that_is_damaged_is_named(tmp_path: Path, contents: str) -> None:
    (tmp_path / "ray-0.json").write_text(contents)
    with pytest.raises(RecordDamaged, match=r"ray-0\.json is damaged, or of another build"):
        running_nodes(tmp_path)


def test_a_token_that_was_not_written_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise NO_SPACE

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            ray_node._token(tmp_path)
    assert list(tmp_path.iterdir()) == []
    path = ray_node._token(tmp_path)
    token = path.read_text()
    assert (len(token), path.stat().st_mode & 0o777) == (64, 0o600)
    assert ray_node._token(tmp_path).read_text() == token


def test_an_empty_token_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "ray.token").touch()
    assert len(ray_node._token(tmp_path).read_text()) == 64
