"""Stray partition directories on a disk."""

from pathlib import Path

import pytest

from raylog.actors.broker.strays import keep_stray, strays_in
from raylog.storage.disk import OsDisk

NAME = "t-0.AAECAwQFBgcICQoLDA0ODw"
NOW_MS = 1_700_000_000_000


def test_the_same_directory_may_stray_again_at_the_same_time(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / NAME).mkdir()
        (tmp_path / NAME / "file").write_text(str(number))
        kept = keep_stray(OsDisk(), str(tmp_path / NAME), NOW_MS)
        assert kept == f"{tmp_path / NAME}.{NOW_MS + number}-stray"
        assert (Path(kept) / "file").read_text() == str(number)
    assert keep_stray(OsDisk(), str(tmp_path / NAME), NOW_MS) is None


def test_only_strays_are_listed_with_their_size(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert strays_in(OsDisk(), str(tmp_path)) == []
    (tmp_path / NAME / "file").write_bytes(b"." * 100_000)
    kept = keep_stray(OsDisk(), str(tmp_path / NAME), NOW_MS)
    (tmp_path / NAME).mkdir()
    (stray,) = strays_in(OsDisk(), str(tmp_path))
    assert stray.directory == kept
    assert stray.size_bytes >= 100_000


def test_no_strays_are_listed_of_a_directory_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert strays_in(OsDisk(), str(tmp_path / "gone")) == []
    assert "cannot be listed: [Errno 2]" in caplog.text
