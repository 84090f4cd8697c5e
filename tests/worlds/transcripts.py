"""Transcripts: commands in a file, each followed by its output.

    begin a 0 1 2
    ----
    a asks 0, 1, 2 for epoch 2

A test runs the commands and compares. With RAYLOG_REWRITE=1 it writes the output into the file
instead; review it before you commit it. Lines that begin with # are comments.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

RULE = "----"


def play(path: Path, run: Callable[[str], list[str]]) -> None:
    """Run the commands of a file; raise AssertionError if an output differs."""
    played = "\n\n".join(_played(block, run) for block in path.read_text().strip().split("\n\n"))
    if os.environ.get("RAYLOG_REWRITE"):
        path.write_text(f"{played}\n")
    assert path.read_text() == f"{played}\n", "RAYLOG_REWRITE=1 writes what comes of it"


def _played(block: str, run: Callable[[str], list[str]]) -> str:
    asked = block.split(f"\n{RULE}", 1)[0]
    commands = [line for line in asked.splitlines() if not line.startswith("#")]
    lines = [line for command in commands for line in run(command)]
    return "\n".join([asked, RULE, *lines]) if commands else asked
