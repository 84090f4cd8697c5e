"""Shutting brokers down with a helper process that may end in any way."""

import sys
from pathlib import Path

import pytest

from raylog.cli.shutting_down import shut_down


def test_a_helper_that_ends_without_a_word_has_shut_nobody_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    failures = shut_down(tmp_path, [0, 1], 30.0, lambda _: None)
    assert failures == dict.fromkeys((0, 1), "Ray did not answer: exit code 0")
