"""The commands that steps run on machines are those in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machines import commands

ROOT = Path(__file__).resolve().parents[3]
SHOWN = {name: text for name, text in vars(commands).items() if name.isupper()}


@pytest.mark.parametrize("name", SHOWN)
def test_a_command_stands_in_the_documents(name: str) -> None:
    documents = "".join(
        (ROOT / "docs" / one).read_text() for one in ("deploy.md", "runbook.md", "operations.md")
    )
    pattern = re.sub(r"\\\{\w+\\\}", r"\\S+", re.escape(SHOWN[name]))
    assert re.search(pattern, documents), f"no document shows {SHOWN[name]}"
