"""Pipelines that an earlier commit stopped in the middle go on: no row lost, none written twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from raylog.testing import EmbeddedBroker
from tests.compat.make_pipelines import BATCHES, PIPELINES, ROWS_A_BATCH
from tests.spark.conftest import ROOT
from tests.spark.reading import values

ARCHIVES = sorted((ROOT / "tests/compat/data").glob("*/pipelines.tar.xz"))
KEPT = {"log.retention.ms": "-1", "offsets.retention.minutes": "2147483647"}
ROWS = ROWS_A_BATCH * (2 * BATCHES)
"""One batch each for the first run, `BATCHES` - 1 more for either pipeline, and one unread."""


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.unpack_archive(request.param, tmp_path)
    return tmp_path


def run_to_the_end(file: Path, bootstrap: str) -> None:
    """Run a pipeline until it is not behind, and stop it."""
    command = [sys.executable, "-m", "raylog.cli", "pipeline", "run", str(file), "--local"]
    command += ["--bootstrap", bootstrap]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        output = []
        for line in run.stderr:
            output.append(line)
            if line.startswith("batch ") and line.endswith(" 0 behind\n"):
                break
        run.terminate()
        output += run.stderr
    assert any(line.startswith("batch ") for line in output), "".join(output)


def test_pipelines_of_an_earlier_commit_go_on(folder: Path) -> None:
    with EmbeddedBroker(data=folder / "data", settings=KEPT) as broker:
        for name in PIPELINES:
            run_to_the_end(folder / f"{name}.toml", broker.bootstrap)
        copied = sorted(json.loads(value)["n"] for value in values(broker.bootstrap, "copied"))
    landed = sorted(pd.read_parquet(folder / "landed")["n"])
    assert copied == list(range(ROWS))
    assert landed == list(range(ROWS))
