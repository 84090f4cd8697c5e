"""Apache Kafka's answers, stored as JSON: every distinct part of an answer once, one per line.

A part refers to the parts inside it by number, as "#12". A step is stored as who was answered and
with what: `a#3 b#7#8`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.differential.playing import Transcripts

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1.json")
_TIGHT: Any = {"separators": (",", ":"), "sort_keys": True, "ensure_ascii": False}


class _Parts:
    """Distinct parts and their numbers."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def put(self, value: Any, session: str) -> Any:
        """The value with numbers for what it holds; the session's name is left out of groups."""
        if isinstance(value, list):
            return [self.put(item, session) for item in value]
        if isinstance(value, str):
            return value.replace(f"{session}.", "~.")
        if not isinstance(value, dict):
            return value
        inner = {key: self.put(item, session) for key, item in value.items()}
        number = self.texts.setdefault(json.dumps(inner, **_TIGHT), len(self.texts))
        return f"#{number}"


def write(transcripts: Transcripts, path: Path = RECORDED) -> None:
    """Keep transcripts."""
    parts = _Parts()
    sessions = []
    for name, transcript in sorted(transcripts.items()):
        steps = [
            " ".join(who + "".join(parts.put(given, name)) for who, given in said.items())
            for said in transcript
        ]
        sessions.append(f"{json.dumps(name)}:{json.dumps(steps, **_TIGHT)}")
    texts = ",\n".join(parts.texts)
    lines = ['{"parts":[', texts, '],"sessions":{', ",\n".join(sessions), "}}\n"]
    path.write_text("\n".join(lines))


def read(path: Path = RECORDED) -> Transcripts:
    """The transcripts that are kept."""
    kept = json.loads(path.read_text())
    parts = kept["parts"]

    def whole(value: Any, session: str) -> Any:
        if isinstance(value, list):
            return [whole(item, session) for item in value]
        if isinstance(value, dict):
            return {key: whole(item, session) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        if value.startswith("#"):
            return whole(parts[int(value[1:])], session)
        return value.replace("~.", f"{session}.")

    def said(step: str, session: str) -> dict[str, list[Any]]:
        answers = [one.split("#") for one in step.split()]
        return {who: [whole(f"#{n}", session) for n in numbers] for who, *numbers in answers}

    return {name: [said(step, name) for step in steps] for name, steps in kept["sessions"].items()}
