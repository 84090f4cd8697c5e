"""The mark in the metadata of an offset that a sink has committed."""

from __future__ import annotations

import json

from raylog.sink.marks import Mark


def read_mark(metadata: str) -> Mark:
    """Return the mark, written by any build."""
    found = json.loads(metadata)
    return Mark(found["query"], found["batch"])
