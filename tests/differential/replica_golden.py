"""Apache Kafka's answers about replicas, stored as JSON: one answer per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.differential.replica_stage import Transcripts

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-replicas.json")
_TIGHT: Any = {"separators": (",", ":"), "sort_keys": True, "ensure_ascii": False}


def write(transcripts: Transcripts) -> None:
    """Keep transcripts."""
    scenarios = [
        f"{json.dumps(name)}:[\n"
        + ",\n".join(json.dumps(one, **_TIGHT) for one in transcript)
        + "\n]"
        for name, transcript in transcripts.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(scenarios) + "\n}\n")


def read() -> Transcripts:
    """The transcripts that are kept."""
    kept: Transcripts = json.loads(RECORDED.read_text())
    return kept
