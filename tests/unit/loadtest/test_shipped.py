"""Scenarios by name or file, and what command-line options change in them."""

from __future__ import annotations

import math
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
    ("change", "expected"),
    [
        ("users.0.rate", "--set: expected FIELD=VALUE such as users.0.rate=20000, found"),
        ("=3", "expected FIELD=VALUE"),
        ("users.1.rate=3", "expected the number of an entry, 0 to 0, found '1'"),
        ("users.first.rate=3", "expected the number of an entry, 0 to 0, found 'first'"),
        ("users.-1.rate=3", "expected the number of an entry"),
        ("name.x=3", '--set name.x=3: expected a table or a list before x, found "mine"'),
        ("name.x.y=3", 'expected a table or a list before x, found "mine"'),
        ("users[0].speed=3", "users[0].speed: unknown field"),
        ("users.0.rate=fast", 'users[0].rate: expected a number, found "fast"'),
        ("users.0.rate=" + "1" * 5_000, "users[0].rate: expected a number, found"),
        ("duration_s=-1", "duration_s: expected a number above 0, found -1"),
    ],
)
def test_changes_that_make_no_sense(file: str, change: str, expected: str) -> None:
    with pytest.raises(BadScenario) as failure:
        found(file, changes=[change])
    assert expected in str(failure.value)


def test_rates_are_scaled_after_they_are_set(file: str) -> None:
    assert rate(file, scale=0.5) == 500
    assert rate(file, scale=0.5, changes=["users.0.rate=10"]) == 5


def test_all_times_change_with_the_duration(file: str) -> None:
    scenario = found(file, duration_s=6.0)
    assert scenario.duration_s == 6.0
    assert scenario.warmup_s == 3, "half of the run at most"
    assert isinstance(scenario.shape, Spike)
    assert scenario.shape.at_s == pytest.approx(3 + 24 / 18)
    assert scenario.shape.lasts_s == pytest.approx(10 / 18)
    assert scenario.shape.factor == 5
    (fault,) = scenario.faults
    assert fault.at_s == pytest.approx(3 + 14 / 18)
    assert fault.lasts_s == 8


@pytest.mark.parametrize("duration_s", [12.0, 30.0, 600.0])
def test_the_warm_up_stays_where_it_fits(file: str, duration_s: float) -> None:
    """Groups take as long to join in a short run as in a long one."""
    assert found(file, duration_s=duration_s).warmup_s == 6


@pytest.mark.parametrize("share", [0.0123, 0.3, 1.0, 7.77])
def test_shipped_scenarios_scale_to_another_duration(file: str, share: float) -> None:
    changes = ["shape.at_s=37.7", "shape.lasts_s=22.3", "warmup_s=59.9", "faults=[]"]
    assert found(file, changes=changes, duration_s=60 * share).duration_s == 60 * share


@pytest.mark.parametrize("share", [0.3, 1.0, 7.77])
def test_a_step_that_fits_fits_into_a_run_of_another_length(file: str, share: float) -> None:
    stairs = ["shape={kind = 'stairs', hold_s = 54}", "faults=[]"]
    assert found(file, changes=stairs, duration_s=60 * share).duration_s == 60 * share


def test_steps_of_a_run_that_is_too_short_are_refused(file: str) -> None:
    stairs = ["shape={kind = 'stairs', hold_s = 20}", "faults=[]"]
    with pytest.raises(BadScenario, match="hold_s: expected 4 s or more"):
        found(file, changes=stairs, duration_s=10)


def test_settings_with_dots_are_set_by_quoted_names(file: str) -> None:
    (users,) = found(file, changes=['users[0].client."linger.ms"=7']).users
    assert users.client == {"linger.ms": 7}


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.0, -1.0])
def test_scales_and_durations_are_numbers_above_0(file: str, number: float) -> None:
    with pytest.raises(BadScenario, match="--scale: expected a number above 0, found"):
        found(file, scale=number)
    with pytest.raises(BadScenario, match="--duration: expected a number above 0, found"):
        found(file, duration_s=number)


def test_times_that_a_file_leaves_out_change_too(file: str) -> None:
    scenario = found(file, changes=["duration_s=600", "shape={kind = 'daily'}"], duration_s=300)
    assert isinstance(scenario.shape, Daily)
    assert scenario.shape.period_s == 300


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nonsense", 'expected a TOML file, or one of the scenarios broker-loss, .*"nonsense"$'),
        ("stedy", 'found "stedy"; did you mean steady?'),
        ("", 'expected a TOML file, or one of the scenarios .*found ""'),
        (".", r"^\. is a directory: expected a TOML file, or one of the scenarios broker-loss, "),
        ("/", "^/ is a directory"),
        ("../mine", 'found "../mine"'),
        ("nothing.toml", "there is no file nothing.toml"),
    ],
)
def test_names_that_are_none(name: str, expected: str) -> None:
    with pytest.raises(BadScenario, match=expected):
        found(name)


def test_a_folder_does_not_hide_a_shipped_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steady").mkdir()
    monkeypatch.chdir(tmp_path)
    assert found("steady").name == "steady"
