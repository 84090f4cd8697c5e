"""The secret of links: where it comes from, and how two are valid while it is replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raylog.actors.runtime import link_secret
from raylog.actors.runtime.link_secret import (
    LinkSecrets,
    SecretMissing,
    read_secrets,
    secrets_of,
    write_secrets,
)

SECRET, NEW = b"s" * 32, b"n" * 32


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    assert read_secrets(str(path)).current == SECRET
    monkeypatch.setenv("NAMED", str(path))
    assert read_secrets("env:NAMED").accepted == (SECRET,)


def test_missing_or_short_secret_is_named_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMED", raising=False)
    with pytest.raises(SecretMissing, match="NAMED is not set here"):
        read_secrets("env:NAMED")
    (tmp_path / "short").write_bytes(b"s")
    with pytest.raises(ValueError, match="holds 1 bytes"):
        read_secrets(str(tmp_path / "short"))
    with pytest.raises(FileNotFoundError):
        read_secrets(str(tmp_path / "none"))


def test_a_secret_is_replaced_in_three_steps(tmp_path: Path) -> None:
    source = str(tmp_path / "secret")
    write_secrets(source, LinkSecrets(SECRET))
    assert Path(source).read_bytes() == SECRET, "as older builds have it"
    steps = []
    for _ in range(3):
        write_secrets(source, read_secrets(source).advanced(NEW))
        found = read_secrets(source)
        steps.append((found.current, found.coming, found.before))
    assert steps == [(SECRET, NEW, None), (NEW, None, SECRET), (NEW, None, None)]
    assert Path(source).read_bytes() == NEW
    assert Path(source).stat().st_mode & 0o777 == 0o600


def test_rewriting_keeps_mode_owner_and_symlink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "secret", tmp_path / "link"
    write_secrets(str(path), LinkSecrets(SECRET))
    path.chmod(0o640)
    link.symlink_to(path)
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, user, group: owners.append((user, group)))
    write_secrets(str(link), LinkSecrets(NEW))
    found = path.stat()
    assert (path.read_bytes(), found.st_mode & 0o777) == (NEW, 0o640)
    assert owners == [(found.st_uid, found.st_gid)]
    assert link.is_symlink()


def test_a_file_whose_owner_cannot_be_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError(errno.EPERM, "of somebody else")

    path = tmp_path / "secret"
    write_secrets(str(path), LinkSecrets(SECRET))
    monkeypatch.setattr(os, "fchown", refused)
    with pytest.raises(PermissionError):
        write_secrets(str(path), LinkSecrets(NEW))
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("secret", SECRET)]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["next " + NEW.hex()], "has no line `current HEX`"),
        (["current " + SECRET.hex(), "current " + NEW.hex()], "line 3: expected `NAME HEX`"),
        (["current zz"], "line 2: expected `NAME HEX`"),
        (["current " + SECRET.hex(), "later " + NEW.hex()], "line 3: expected `NAME HEX`"),
        (["current " + SECRET.hex(), "next 00"], "holds 1 bytes"),
        (["current"], "line 2: expected `NAME HEX`"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, lines: list[str], why: str
) -> None:
    path = tmp_path / "secret"
    path.write_text("\n".join(["raylog-secrets", *lines]))
    with pytest.raises(ValueError, match=why) as refused:
        read_secrets(str(path))
    assert SECRET.hex() not in str(refused.value)


def test_all_of_a_process_take_what_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_secret, "_known", {})
    source = str(tmp_path / "secret")
    write_secrets(source, LinkSecrets(SECRET))
    held = secrets_of(source)
    write_secrets(source, held.advanced(NEW))
    assert secrets_of(source).accepted == (SECRET,)
    assert secrets_of(source, anew=True) is held
    assert held.accepted == (SECRET, NEW)
    assert len({*held.fingerprints}) == 2
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(ValueError, match="holds 5 bytes"):
        secrets_of(source, anew=True)
    assert held.accepted == (SECRET, NEW), "what was known holds"


def test_a_file_of_every_machine_is_not_written() -> None:
    with pytest.raises(ValueError, match="written there by hand"):
        write_secrets("env:NAMED", LinkSecrets(SECRET))
