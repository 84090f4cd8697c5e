"""`raylog pipeline run --local` as a process of its own, with a JVM of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from raylog.client import BlockingClient, NewTopic
from tests.spark.conftest import ROOT
from tests.spark.reading import values
from tests.support.ray_clusters import wait_until

RAYLOG = [sys.executable, "-m", "raylog.cli", "pipeline"]
TEXT = """
name = "{name}"
bootstrap = "{bootstrap}"
checkpoint = "checkpoint"
trigger = "100 milliseconds"

[sources.rows]
topics = ["{name}-in"]
format = "json"
schema = "n INT NOT NULL"

[transform]
function = "beside:squared"

[sink]
topic = "{name}-out"
key = ["n"]
"""
BESIDE = """
from pyspark.sql.functions import udf


def product(n):
    return n * n


square = udf(product, "int")


def squared(spark, views):
    return views["rows"].select("n", square("n").alias("squared"))
"""


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*RAYLOG, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def of_status(file: Path) -> dict[str, object]:
    """What `raylog pipeline status` says."""
    found: dict[str, object] = json.loads(call("status", file, "--json").stdout)
    return found


def feed(bootstrap: str, topic: str, *rows: bytes) -> None:
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for row in rows:
            producer.send(topic, row)


def test_pipeline_runs_until_stopped_and_reports_its_failure(
    raylog: str, name: str, tmp_path: Path
) -> None:
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(f"{name}-in", 1), NewTopic(f"{name}-out", 1)])
    feed(raylog, f"{name}-in", b'{"n": 3}', b'{"n": 4}')
    (tmp_path / "beside.py").write_text(BESIDE)
    file = tmp_path / "squares.toml"
    file.write_text(TEXT.format(name=name, bootstrap=raylog))
    command = [*RAYLOG, "run", str(file), "--local"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        lines = iter(run.stderr.readline, "")
        output = list(takewhile(lambda line: not line.startswith("batch 0: 2 rows"), lines))
        log = tmp_path / "checkpoint" / "raylog" / "spark.log"
        assert [line for line in output if not line.startswith("starting Spark: ")] == [
            "most records in a batch: 1,000,000 of rows (max_offsets_per_trigger)\n",
            f"Spark logs to {log}\n",
            "starting Spark\n",
            f"{name} runs\n",
        ]
        wait_until(lambda: of_status(file)["batch_id"] == 0, "the batch to be told")
        found = of_status(file)
        assert (found["state"], found["pid"], found["rows"]) == ("running", run.pid, 2)
        second = call("run", file, "--local")
        assert f"{name} is running already, as process {run.pid}" in second.stderr
        assert found["lag"] == {f"{name}-in": 0}
        stopped = call("stop", file)
        assert (stopped.returncode, run.wait()) == (0, 0), stopped.stderr
        assert f"{name} is stopped: 2 rows in this run" in "".join(lines)
    written = [json.loads(value) for value in values(raylog, f"{name}-out")]
    assert written == [{"n": 3, "squared": 9}, {"n": 4, "squared": 16}]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        for line in iter(killed.stderr.readline, ""):
            if line == f"{name} runs\n":
                killed.kill()
        assert killed.wait() == -signal.SIGKILL
    assert of_status(file)["state"] == "died"
    feed(raylog, f"{name}-in", b"[]")
    failed = call("run", file, "--local")
    assert failed.returncode == 1
    assert f"Error: {name}-in-0 at offset 2 (no key): not one JSON object" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "last error:" in call("status", file).stdout
