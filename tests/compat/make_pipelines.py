"""Pipelines as this build leaves them: `python -m tests.compat.make_pipelines data/<commit>`.

`pipelines.tar.xz` has a broker's data, two pipelines with their checkpoints, one that copies rows
to a topic and one that lands them as Parquet, each stopped after some batches, and rows that
neither has read yet. Later builds must go on with them (`tests/spark/test_compat.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from raylog.client import BlockingClient, NewTopic
from raylog.testing import EmbeddedBroker

PARTITIONS = 2
BATCHES = 3
ROWS_A_BATCH = 50
PIPELINES = {"copied": 'topic = "copied"\nkey = ["n"]', "landed": 'path = "landed"'}
TEXT = """
name = "{name}"
bootstrap = "127.0.0.1:9092"
checkpoint = "checkpoint-{name}"
trigger = "100 milliseconds"

[sources.rows]
topics = ["rows"]
format = "json"
schema = "n INT NOT NULL"

[transform]
sql = "SELECT n, n * n AS squared FROM rows"

[sink]
{sink}
"""


def send_rows(bootstrap: str, first: int) -> int:
    """Append the next rows to the source topic; returns the number of the one after them."""
    end = first + ROWS_A_BATCH
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for number in range(first, end):
            producer.send("rows", json.dumps({"n": number}).encode())
    return end


def _run(bootstrap: str, folder: Path) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, PARTITIONS) for name in ("rows", "copied")])
    end = send_rows(bootstrap, 0)
    for name, sink in PIPELINES.items():
        file = folder / f"{name}.toml"
        file.write_text(TEXT.format(name=name, sink=sink))
        command = [sys.executable, "-m", "raylog.cli", "pipeline", "run", str(file), "--local"]
        command += ["--bootstrap", bootstrap]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
            assert run.stderr is not None
            batches = 0
            for line in run.stderr:
                sys.stderr.write(line)
                if line.startswith("batch "):
                    batches += 1
                    if batches == BATCHES:
                        break
                    end = send_rows(bootstrap, end)
            run.terminate()
            run.stderr.read()
    send_rows(bootstrap, end)


def main() -> None:
    """Write the archive."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("out", type=Path)
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with EmbeddedBroker(data=folder / "data") as broker:
            _run(broker.bootstrap, folder)
        with tarfile.open(out / "pipelines.tar.xz", "w:xz", preset=9) as archive:
            archive.add(folder, ".")


if __name__ == "__main__":
    main()
