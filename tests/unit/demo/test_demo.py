"""The flights as events, and the digests that compare them."""

import json
import zipfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from raylog import demo
from raylog.testing import EmbeddedBroker

HEAD = (
    '"year","month","day","dep_time","sched_dep_time","dep_delay","arr_time","sched_arr_time",'
    '"arr_delay","carrier","flight","tailnum","origin","dest","air_time","distance","hour",'
    '"minute","time_hour"\n'
)
LATER = (
    '2013,1,1,517,515,2,830,819,11,"UA",1545,"N14228","EWR","IAH",227,1400,5,15,'
    "2013-01-01T10:00:00Z\n"
)
CANCELLED = '2013,1,1,NA,500,NA,NA,700,NA,"AA",1,NA,"JFK","BOS",NA,187,5,0,2013-01-01T10:00:00Z\n'
TEN_MS = 1_357_034_400_000


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("flights.csv", HEAD + LATER + CANCELLED * 3)
    monkeypatch.setattr(demo, "_data_file", lambda: path)
    return path


def test_flights_come_in_the_order_of_their_scheduled_departure(archive: Path) -> None:
    events = demo.load_flights(partitions=2)
    assert [event.timestamp_ms for event in events] == [TEN_MS] * 3 + [TEN_MS + 15 * 60_000]


def test_what_is_not_known_is_null(archive: Path) -> None:
    cancelled, *_, flown = demo.load_flights(partitions=2)
    assert cancelled.key is None
    fields = json.loads(cancelled.value)
    assert fields["dep_time"] is None
    assert fields["tailnum"] is None
    assert fields["sched_dep_time"] == 500
    assert flown.key == b"N14228"
    assert json.loads(flown.value)["carrier"] == "UA"
    assert b"NaN" not in cancelled.value
    assert b"NA" not in cancelled.value


def test_flights_without_a_tail_number_are_spread(archive: Path) -> None:
    assert [event.partition for event in demo.load_flights(partitions=3)[:3]] == [0, 1, 2]
    assert len(demo.load_flights(partitions=3, limit=2)) == 2


def test_digests_tell_order_null_and_time_apart() -> None:
    def total(*records: tuple[int, int, bytes | None, bytes]) -> str:
        digests = demo.Digests()
        for record in records:
            digests.add(*record)
        return digests.total

    a, b = (0, 1, b"k", b"v"), (0, 2, b"k", b"w")
    assert total(a, b) == total(a, b)
    variants = {
        total(a, b),
        total(b, a),
        total(a),
        total((0, 1, None, b"v"), b),
        total((0, 1, b"", b"v"), b),
        total((0, 9, b"k", b"v"), b),
        total((1, 1, b"k", b"v"), b),
    }
    assert len(variants) == 7


def test_the_data_is_found_without_importing_its_package() -> None:
    assert demo._data_file().is_file()


@pytest.fixture
def broker() -> Iterator[str]:
    with EmbeddedBroker() as embedded:
        yield embedded.bootstrap


def test_a_round_trip_agrees(archive: Path, broker: str) -> None:
    said = StringIO()
    assert demo.run(lambda: broker, 3, None, Console(file=said, width=120))
    assert "the digests agree" in said.getvalue()


def test_a_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "run", lambda *_: False)
    monkeypatch.setattr(demo, "_check_reachable", lambda _: None)
    answer = CliRunner().invoke(_app(), ["--bootstrap", "127.0.0.1:1"])
    assert answer.exit_code == 1


@pytest.mark.parametrize(
    ("bootstrap", "text"), [("nowhere", "is no address"), ("127.0.0.1:1", "nothing answers")]
)
def test_what_is_missing_is_said(bootstrap: str, text: str) -> None:
    answer = CliRunner().invoke(_app(), ["--bootstrap", bootstrap])
    assert answer.exit_code == 2
    assert text in answer.stdout


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(demo.demo)
    return app
