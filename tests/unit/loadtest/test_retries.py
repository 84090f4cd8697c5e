"""Producers without idempotence: the effects of their retries are not a broker's wrong answers."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.client import TopicPartition
from raylog.loadtest.findings import Findings
from raylog.loadtest.local import Local
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
        ({}, {}),
        ({"enable.idempotence": False}, {"t-run": ["users[1]"]}),
        ({"acks": 1}, {"t-run": ["users[1]"]}),
        ({"acks": 1, "retries": 0}, {}),
    ],
)
def test_entries_without_idempotence(
    settings: dict[str, Any], entries: dict[str, list[str]]
) -> None:
    assert without_idempotence(Local(scenario(settings), "run", "")) == entries


def test_records_doubled_by_retries_are_a_note_not_a_failure() -> None:
    example = "t-0: record 7 is there 2 times"
    doubled = Finding(kind="doubled", topic="t", count=1_200, examples=[example])
    lost = Finding(kind="lost", topic="t", count=1, examples=["t-0: record 9 is not there"])
    assert divided([lost, doubled], {}) == ([lost, doubled], [])
    assert divided([lost, doubled], {"t": ["users[1]"]}) == (
        [lost],
        [
            "1,200 records of t are doubled. This does not fail the run, because users[1] retries "
            "without enable.idempotence. The first: t-0: record 7 is there 2 times"
        ],
    )


def test_retries_explain_nothing_in_other_topics() -> None:
    findings = Findings()
    findings.add("doubled", TopicPartition("clicks", 0), "record 1", 7)
    findings.add("doubled", TopicPartition("orders", 1), "record 2", 3)
    findings.add("reordered", TopicPartition("orders", 1), "record 4")
    wrong, notes = divided(findings.result(), {"clicks": ["users[1]"]})
    assert [(one.kind, one.topic, one.count, one.examples) for one in wrong] == [
        ("doubled", "orders", 3, ["orders-1: record 2"]),
        ("reordered", "orders", 1, ["orders-1: record 4"]),
    ]
    assert len(notes) == 1
    assert notes[0].startswith("7 records of clicks are doubled.")


@pytest.mark.parametrize("policy", ["compact", "delete, compact"])
def test_topics_that_are_compacted_are_refused(policy: str) -> None:
    with pytest.raises(
        BadScenario,
        match=rf"topics\.t\.settings.*expected cleanup\.policy=delete, found {policy}: ",
    ):
        scenario({}, {"settings": {"cleanup.policy": policy}})
    assert scenario({}, {"settings": {"cleanup.policy": "delete"}})
