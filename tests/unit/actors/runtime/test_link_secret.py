"""The secret of links from a file, from a file that the environment names; too short, missing."""

from pathlib import Path

import pytest

from raylog.actors.runtime.link_secret import SecretMissing, read_secret

SECRET = b"s" * 32


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    assert read_secret(str(path)) == SECRET
    monkeypatch.setenv("NAMED", str(path))
    assert read_secret("env:NAMED") == SECRET


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMED", raising=False)
    with pytest.raises(SecretMissing, match="NAMED is not set here"):
        read_secret("env:NAMED")
    (tmp_path / "short").write_bytes(b"s")
    with pytest.raises(ValueError, match="holds 1 bytes"):
        read_secret(str(tmp_path / "short"))
    with pytest.raises(FileNotFoundError):
        read_secret(str(tmp_path / "none"))
