"""Producers without idempotence: the effects of their retries are not a broker's wrong answers."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.loadtest.results import Finding
from raylog.loadtest.retries import divided, without_idempotence
from raylog.loadtest.scenario import BadScenario, Scenario, checked


def scenario(settings: dict[str, Any], topic: dict[str, Any] | None = None) -> Scenario:
    document = {
        "name": "s",
        "question": "?",
        "duration_s": 10,
        "warmup_s": 0,
        "topics": {"t": topic or {}},
        "users": [
            {"kind": "consumer", "topic": "t"},
            {"kind": "producer", "topic": "t", "rate": 1, "client": settings},
        ],
    }
    return checked(document, "mine.toml")


@pytest.mark.parametrize(
    ("settings", "entries"),
    [
        ({}, []),
        ({"enable.idempotence": False}, ["users[1]"]),
        ({"acks": 1}, ["users[1]"]),
        ({"acks": 1, "retries": 0}, []),
    ],
)
def test_entries_without_idempotence(settings: dict[str, Any], entries: list[str]) -> None:
    assert without_idempotence(scenario(settings), {}) == entries


def test_records_doubled_by_retries_are_a_note_not_a_failure() -> None:
    doubled = Finding(kind="doubled", count=1_200, examples=["t-0: record 7 is there 2 times"])
    lost = Finding(kind="lost", count=1, examples=["t-0: record 9 is not there"])
    assert divided([lost, doubled], []) == ([lost, doubled], [])
    assert divided([lost, doubled], ["users[1]"]) == (
        [lost],
        [
            "1,200 records are doubled. This does not fail the run, because users[1] retries "
            "without enable.idempotence. The first: t-0: record 7 is there 2 times"
        ],
    )


@pytest.mark.parametrize("policy", ["compact", "delete, compact"])
def test_topics_that_are_compacted_are_refused(policy: str) -> None:
    with pytest.raises(
        BadScenario,
        match=rf"topics\.t\.settings.*expected cleanup\.policy=delete, found {policy}: ",
    ):
        scenario({}, {"settings": {"cleanup.policy": policy}})
    assert scenario({}, {"settings": {"cleanup.policy": "delete"}})
