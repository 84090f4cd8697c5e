"""The JSON file of a run: written files can be read, anything else gets a clear error."""

import json
import math
from pathlib import Path

import pytest

from raylog.loadtest.report import BadResult, read_json, write_json
from raylog.loadtest.results import Gauge
from raylog.loadtest.scenario import ProducerUsers
from tests.support import load_results


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = load_results.failed(seconds=6)
    write_json(written, tmp_path / "run.json")
    assert read_json(tmp_path / "run.json") == written
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_a_file_that_was_cut_off_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(load_results.result(6), path)
    whole = path.read_bytes()
    for length in (0, 1, 1000, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(BadResult, match=r"run\.json: not JSON, or cut off"):
            read_json(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * 100_000, "not JSON, or cut off"),
        ("[1, 2]", "expected the JSON of a load test"),
        ("{}", "found no field 'format'"),
        ('{"format": 3, "news": true}', "expected format 2, found 3; a newer Raylog may have"),
        ('{"format": 0}', "expected format 2, found 0$"),
        ('{"format": "2"}', "expected format 2, found '2'$"),
        ('{"format": 2}', "run: Field required.*and 11 more"),
        ("\x00\x01", "not JSON"),
    ],
)
def test_other_files_are_reported(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(BadResult, match=expected):
        read_json(path)


def test_a_field_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(load_results.result(6), path)
    found = json.loads(path.read_text())
    found["operations"][1]["intervals"][0]["requests"] = "many"
    path.write_text(json.dumps(found))
    with pytest.raises(BadResult, match=r"operations\.1\.intervals\.0\.requests: Input should be"):
        read_json(path)


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (("operations", 1, "intervals", 3, "latencies"), r"operations\.1\.intervals\.3\.latencies"),
        (("generators", 1, "lateness"), r"generators\.1\.lateness"),
    ],
)
def test_latencies_that_are_damaged_are_reported_with_their_file(
    tmp_path: Path, place: tuple[str | int, ...], named: str
) -> None:
    path = tmp_path / "run.json"
    write_json(load_results.result(6), path)
    found = json.loads(path.read_text())
    there = found
    for key in place[:-1]:
        there = there[key]
    there[place[-1]] = "damaged"
    path.write_text(json.dumps(found))
    with pytest.raises(BadResult, match=rf"run\.json: {named}: expected an HdrHistogram: "):
        read_json(path)


def test_passwords_are_not_written(tmp_path: Path) -> None:
    client = {"sasl_username": "jane", "sasl.password": "hunter2", "ssl_key_password": "hunter3"}
    users = [{"kind": "producer", "topic": "orders", "rate": 1.0, "client": client}]
    result = load_results.result(6, scenario=load_results.scenario(users=users))
    write_json(result, tmp_path / "run.json")
    assert "hunter" not in (tmp_path / "run.json").read_text()
    (read,) = read_json(tmp_path / "run.json").scenario.users
    assert isinstance(read, ProducerUsers)
    assert read.client["sasl_username"] == "jane"
    assert read.client["sasl.password"] == "(kept secret)"


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    points = [(0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 2.0)]
    gauge = Gauge(name="loop lag", labels={}, unit="s", points=points)
    write_json(load_results.result(6, gauges=[gauge]), tmp_path / "run.json")
    (read,) = read_json(tmp_path / "run.json").gauges
    assert read.points == [(0.0, 1.0), (3.0, 2.0)]
