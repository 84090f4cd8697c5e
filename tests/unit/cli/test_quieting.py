"""Output of libraries and child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raylog.cli.quieting import output_to


def test_ours_are_seen_and_others_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "new" / "words.log"
    with output_to(log):
        os.write(2, b"a library\n")
        subprocess.run(["/bin/sh", "-c", "echo a child >&2"], check=True)
        print("we", file=sys.stderr)  # noqa: T201  # what the test is about
    os.write(2, b"a library later\n")
    assert log.read_text() == "a library\na child\n"
    assert capfd.readouterr().err == "we\na library later\n"


def test_a_failure_is_seen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), output_to(tmp_path / "words.log"):
        raise RuntimeError
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"
