"""Scenarios by name or file, and what the command line changes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.loadtest.scenario import BadScenario, Daily, ProducerUsers, Spike
from raylog.loadtest.shipped import found

TEXT = """
name = "mine"
question = "Is it fast?"
duration_s = 60
warmup_s = 6

[topics.orders]
partitions = 3

[[users]]
kind = "producer"
topic = "orders"
rate = 1000

[shape]
kind = "spike"
at_s = 30
lasts_s = 10
factor = 5

[[faults]]
kind = "pause-broker"
at_s = 20
lasts_s = 8
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return str(path)


def rate(name: str, **changed: object) -> float:
    (users,) = found(name, **changed).users  # type: ignore[arg-type]  # options of a test
    assert isinstance(users, ProducerUsers)
    return users.rate


def test_a_file(file: str) -> None:
    assert found(file).name == "mine"


def test_fields_are_set_by_dotted_names(file: str) -> None:
    changes = ["users.0.rate=20_000", "topics.orders.partitions = 12", "question=Really?"]
    scenario = found(file, changes=[*changes, "faults=[]", "topics.more.partitions=1"])
    assert rate(file, changes=changes) == 20_000
    assert {name: one.partitions for name, one in scenario.topics.items()} == {
        "orders": 12,
        "more": 1,
    }
    assert scenario.question == "Really?"
    assert scenario.faults == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("users.0.rate", "expected FIELD=VALUE"),
        ("=3", "expected FIELD=VALUE"),
        ("users.1.rate=3", "expected a number below 1, found '1'"),
        ("users.first.rate=3", "expected a number below 1, found 'first'"),
        ("users.-1.rate=3", "expected a number below 1"),
        ("name.x=3", "is no table and no list"),
        ("name.x.y=3", "is no table and no list"),
        ("users.0.speed=3", "speed"),
        ("users.0.rate=fast", "rate"),
        ("duration_s=-1", "duration_s"),
    ],
)
def test_changes_that_make_no_sense(file: str, change: str, told: str) -> None:
    with pytest.raises(BadScenario) as failure:
        found(file, changes=[change])
    assert told in str(failure.value)


def test_rates_are_scaled_after_they_are_set(file: str) -> None:
    assert rate(file, scale=0.5) == 500
    assert rate(file, scale=0.5, changes=["users.0.rate=10"]) == 5


def test_all_times_change_with_the_duration(file: str) -> None:
    scenario = found(file, duration_s=6.0)
    assert scenario.duration_s == 6.0
    assert scenario.warmup_s == pytest.approx(0.6)
    assert isinstance(scenario.shape, Spike)
    assert scenario.shape.at_s == pytest.approx(3)
    assert scenario.shape.lasts_s == pytest.approx(1)
    assert scenario.shape.factor == 5
    (fault,) = scenario.faults
    assert fault.at_s == pytest.approx(2)
    assert fault.lasts_s == 8


def test_times_that_a_file_leaves_out_change_too(file: str) -> None:
    scenario = found(file, changes=["shape={kind = 'daily'}"], duration_s=30.0)
    assert isinstance(scenario.shape, Daily)
    assert scenario.shape.period_s == 300


@pytest.mark.parametrize("name", ["nonsense", "", "../mine", "nothing.toml"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BadScenario):
        found(name)
