"""Pipelines in the middle of their way, as an earlier commit has left them.

`data/<commit>/pipelines.tar.xz` has the directory of one broker, and of two pipelines that this
commit ran over the same six records, 0 to 4 and one that does not parse: `to-topic` and `to-folder`
have written their second batch, and Spark does not know of it yet.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas
import pytest

from raylog.raydp_jobs.pipelines.runs import RunState
from raylog.raydp_jobs.pipelines.spec import PipelineSpec
from raylog.raydp_jobs.pipelines.state import older_run
from raylog.testing import EmbeddedBroker
from tests.spark.test_older_builds import DATA, KEPT
from tests.spark.test_pipelines import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", params=sorted(path.name for path in DATA.iterdir()))
def left(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """What the commit has left, and three records more."""
    folder = tmp_path_factory.mktemp("older")
    shutil.unpack_archive(DATA / request.param / "pipelines.tar.xz", folder)
    with EmbeddedBroker(data=folder / "broker", settings=KEPT) as broker:
        bench = Bench(spark, broker.bootstrap, folder)
        bench.feed("in", {"n": 5}, b"worse", {"n": 6})
        yield bench


def spec(bench: Bench, name: str, sink: dict[str, object]) -> PipelineSpec:
    return bench.spec(
        name,
        checkpoint=bench.folder / name,
        source={"topics": ["in"], "schema": "n INT NOT NULL", "max_offsets_per_trigger": 4},
        transform={"sql": "SELECT n FROM rows"},
        sink=sink,
    )


def check_letters(bench: Bench, name: str) -> None:
    assert [one.value for one in bench.records(f"{name}-bad")] == [b"bad", b"worse"]


def last_run(bench: Bench, name: str) -> RunState:
    found = older_run(bench.folder / name)
    assert found is not None
    return found


def test_a_topic_gets_each_row_once(left: Bench) -> None:
    assert (last_run(left, "to-topic").state, last_run(left, "to-topic").rows) == ("stopped", 6)
    left.run(spec(left, "to-topic", {"topic": "out", "key": ["n"]}))
    assert left.rows("out") == [{"n": n} for n in range(7)]
    check_letters(left, "to-topic")


def test_a_folder_gets_each_row_once(left: Bench) -> None:
    left.run(spec(left, "to-folder", {"path": left.folder / "landed"}))
    assert sorted(pandas.read_parquet(left.folder / "landed")["n"]) == list(range(7))
    check_letters(left, "to-folder")
    newest = json.loads((left.folder / "landed" / "_landed.json").read_text())
    assert newest["batch"]["sources"][0]["topics"]["in"]["ends"] == {"0": 9}
