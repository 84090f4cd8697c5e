"""Batches as folders: which have landed, which may land, and what stops."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.parquet  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.checkpoints import BatchSource
from raylog.raydp_jobs.pipelines.landing import Landing
from raylog.raydp_jobs.pipelines.manifests import LandingFailed
from raylog.sink.batches import KafkaRange, SourceMismatch
from raylog.sink.state import StateUnreadable

KEY = TopicPartition("in", 0)


class Rows:
    """Stands in for a DataFrame of one column that writes two files."""

    def __init__(self, *values: int, lost: int = 0) -> None:
        self.values, self.lost = values, lost
        self.written = 0

    @property
    def write(self) -> Rows:
        return self

    def option(self, _name: str, _value: str) -> Rows:
        return self

    def parquet(self, path: str) -> None:
        folder = Path(path.removeprefix("file://"))
        folder.mkdir(parents=True)
        self.written += 1
        kept = self.values[self.lost :]
        for number, part in enumerate((kept[::2], kept[1::2])):
            pyarrow.parquet.write_table(pa.table({"n": part}), folder / f"part-{number}.parquet")
        (folder / "_SUCCESS").touch()

    def count(self) -> int:
        return len(self.values)


def batch(number: int, start: int, end: int, query: str = "q") -> BatchSource:
    return BatchSource(query, number, (KafkaRange({KEY: start}, {KEY: end}),))


def land(folder: Path, source: BatchSource, rows: Rows, **options: Any) -> bool:
    found: Any = rows
    return Landing(folder).write(found, source, lambda: len(rows.values), **options)


def landed(folder: Path) -> list[int]:
    """What a reader finds, by batches."""
    found = pyarrow.parquet.read_table(folder).column("n").to_pylist()
    return sorted(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With two batches that have landed."""
    path = tmp_path / "landed"
    assert land(path, batch(0, 0, 3), Rows(0, 1, 2))
    assert land(path, batch(1, 3, 5), Rows(3, 4))
    return path


@pytest.fixture
def older(folder: Path) -> Path:
    """The same as a build that wrote no manifests leaves it."""
    for path in [folder / "_landed.json", *folder.glob("batch=*/_manifest.json")]:
        path.unlink()
    return folder


def test_batches_are_there_with_their_manifests(folder: Path) -> None:
    assert landed(folder) == [0, 1, 2, 3, 4]
    newest = json.loads((folder / "_landed.json").read_text())
    assert newest == json.loads((folder / "batch=1" / "_manifest.json").read_text())
    assert (newest["version"], newest["rows"]) == (1, 2)
    assert newest["batch"]["sources"][0]["topics"] == {"in": {"starts": {"0": 3}, "ends": {"0": 5}}}
    assert (folder / "_query").read_text() == "q"
    assert {path.name for path in folder.iterdir()} == {
        "_query",
        "_landed.json",
        "batch=0",
        "batch=1",
    }


def test_a_batch_with_the_same_ends_is_skipped(folder: Path) -> None:
    again = Rows(3, 4)
    assert not land(folder, batch(1, 3, 5), again)
    assert again.written == 0


def test_a_batch_of_the_same_number_with_other_ends_stops(folder: Path) -> None:
    """Its number alone would have it skipped, and the rows from 5 on lost."""
    with pytest.raises(SourceMismatch, match="in-0 committed up to 5, found 9"):
        land(folder, batch(1, 3, 9), Rows(3, 4, 5, 6, 7, 8))
    assert landed(folder) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (batch(0, 0, 3), "batch 0 of query 'q', which ends at 3 of in-0, comes after batch 1"),
        (batch(2, 4, 9), "in-0 was committed up to 5, it begins at 4"),
        (batch(2, 6, 9), "in-0 was committed up to 5, it begins at 6"),
    ],
)
def test_a_batch_that_does_not_go_on_stops(folder: Path, source: BatchSource, says: str) -> None:
    with pytest.raises(SourceMismatch, match=says):
        land(folder, source, Rows(9))
    assert landed(folder) == [0, 1, 2, 3, 4]


def test_another_query_is_refused(folder: Path) -> None:
    with pytest.raises(LandingFailed, match=r"holds the rows of another query \(q\); this one is"):
        land(folder, batch(2, 5, 6, query="other"), Rows(5))


def test_rows_that_the_driver_does_not_see_stop_the_batch(folder: Path) -> None:
    """Tasks on other nodes have written them to disks of their own."""
    with pytest.raises(
        LandingFailed,
        match=r"batch 2 .*: the tasks have written 3 rows, the driver finds 1 in .*_writing/2-.*: "
        "sink.path must be on a file system that all nodes share",
    ):
        land(folder, batch(2, 5, 8), Rows(5, 6, 7, lost=2))
    assert landed(folder) == [0, 1, 2, 3, 4]
    assert land(folder, batch(2, 5, 8), Rows(5, 6, 7))


def test_a_check_that_fails_keeps_the_batch_out(folder: Path) -> None:
    def check() -> None:
        raise LandingFailed("not now")

    with pytest.raises(LandingFailed, match="not now"):
        land(folder, batch(2, 5, 6), Rows(5), check=check)
    assert landed(folder) == [0, 1, 2, 3, 4]


def test_only_one_of_two_runs_lands_a_batch(folder: Path) -> None:
    def other() -> None:
        shutil.copytree(folder / "batch=1", folder / "batch=2")

    with pytest.raises(LandingFailed, match="another run has landed batch 2 of query 'q'"):
        land(folder, batch(2, 5, 6), Rows(5), check=other)


def test_batches_that_were_taken_away_are_not_forgotten(folder: Path) -> None:
    shutil.rmtree(folder / "batch=0")
    shutil.rmtree(folder / "batch=1")
    assert not land(folder, batch(1, 3, 5), Rows(3, 4))
    with pytest.raises(SourceMismatch, match="in-0 committed up to 5, found 9"):
        land(folder, batch(1, 3, 9), Rows(3))
    assert land(folder, batch(2, 5, 6), Rows(5))


def test_a_batch_that_landed_without_a_word_of_it_counts(folder: Path) -> None:
    """The driver died behind the rename."""
    before = (folder / "_landed.json").read_text()
    assert land(folder, batch(2, 5, 6), Rows(5))
    (folder / "_landed.json").write_text(before)
    assert not land(folder, batch(2, 5, 6), Rows(5))
    assert land(folder, batch(3, 6, 7), Rows(6))


@pytest.mark.parametrize("name", ["_landed.json", "batch=1/_manifest.json"])
def test_a_manifest_of_a_newer_build_is_refused_by_name(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(
        LandingFailed, match=rf"{name} is of version 2, this build knows 0 \(no such file\) and 1"
    ):
        land(folder, batch(2, 5, 6), Rows(5))


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_damaged_manifest_is_named(folder: Path, text: str) -> None:
    (folder / "_landed.json").write_text(text)
    with pytest.raises(LandingFailed, match=r"_landed\.json is damaged"):
        land(folder, batch(2, 5, 6), Rows(5))


def test_a_manifest_without_its_batch_is_named(folder: Path) -> None:
    (folder / "_landed.json").write_text('{"version": 1, "batch": {"query": "q"}}')
    with pytest.raises(StateUnreadable, match=r"_landed\.json is damaged"):
        land(folder, batch(2, 5, 6), Rows(5))


def test_a_folder_of_an_older_build_is_gone_on_with(older: Path) -> None:
    """Where its last batch ended is not known: its rows are counted."""
    assert not land(older, batch(1, 3, 5), Rows(3, 4))
    assert land(older, batch(2, 5, 6), Rows(5))
    assert landed(older) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("source", "rows", "says"),
    [
        (
            batch(1, 3, 9),
            Rows(3, 4, 5),
            "has 3 rows, what has landed under this number in .* has 2",
        ),
        (batch(0, 0, 3), Rows(0, 1, 2), "comes after batch 1, which has landed in .*older copy"),
    ],
)
def test_a_folder_of_an_older_build_that_does_not_fit_stops(
    older: Path, source: BatchSource, rows: Rows, says: str
) -> None:
    with pytest.raises(LandingFailed, match=says):
        land(older, source, rows)


def test_an_older_build_may_have_landed_since(folder: Path) -> None:
    shutil.copytree(folder / "batch=1", folder / "batch=2")
    (folder / "batch=2" / "_manifest.json").unlink()
    assert not land(folder, batch(2, 5, 7), Rows(5, 6))
    assert land(folder, batch(3, 7, 8), Rows(7))


def test_an_empty_folder_does_not_take_a_later_batch(tmp_path: Path) -> None:
    """What should be there may not be mounted."""
    with pytest.raises(LandingFailed, match=r"is empty, and batch 7 .* is not the first") as raised:
        land(tmp_path, batch(7, 50, 51), Rows(50))
    assert f"echo q > {tmp_path / '_query'}" in str(raised.value)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "_query").write_text("q\n")
    assert land(tmp_path, batch(7, 50, 51), Rows(50))


def test_a_folder_may_be_claimed_before_its_first_batch(tmp_path: Path) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        land(tmp_path, batch(0, 0, 1), Rows(0), check=die)
    assert land(tmp_path, batch(0, 0, 1), Rows(0))
    assert landed(tmp_path) == [0]


def test_names_that_are_no_batches_are_passed_over(folder: Path) -> None:
    (folder / "batch=tmp").mkdir()
    (folder / "batch=9.old").mkdir()
    assert land(folder, batch(2, 5, 6), Rows(5))
