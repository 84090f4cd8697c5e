"""Finds or downloads Spark's Kafka connector: four jars that pyspark does not include.

| where | when |
|---|---|
| a folder | if one is given: all four must be there |
| the local Maven repository | if all four are there |
| `mvn` | if it is installed: downloads them to the local repository, with the user's settings |
| Spark's resolver | otherwise: downloads them to Ivy's cache |

RayDP ignores `spark.jars.packages`, so executors get the jars as paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"
_FETCH_S = 600
_LINES_SHOWN = 5
_RESOLVE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = spark.config("spark.jars.packages", sys.argv[1]).getOrCreate()
print("jars", spark.sparkContext.getConf().get("spark.jars"))
spark.stop()
"""


class JarsMissing(Exception):
    """The connector is not available; the message says what was tried."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar with its Maven coordinates."""

    group: str
    name: str
    version: str

    @property
    def file_name(self) -> str:
        """Its file name in repositories."""
        return f"{self.name}-{self.version}.jar"

    def path_in(self, repository: Path) -> Path:
        """Return its path in a local Maven repository."""
        folder = repository.joinpath(*self.group.split("."), self.name, self.version)
        return folder / self.file_name


ARTIFACTS = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.12", "3.5.7"),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.12", "3.5.7"),
    Artifact("org.apache.kafka", "kafka-clients", "3.4.1"),
    Artifact("org.apache.commons", "commons-pool2", "2.11.1"),
)


def connector_jars(
    folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> list[Path]:
    """Return the paths of the connector's jars; raise JarsMissing."""
    environment = os.environ if environment is None else environment
    if folder is not None:
        return _in_folder(folder)
    repository = Path(environment.get("MAVEN_REPO_LOCAL") or Path.home() / ".m2" / "repository")
    found = _in_repository(repository)
    if found is not None:
        return found
    tried = [f"{repository} does not have them"]
    mvn = shutil.which("mvn", path=environment.get("PATH", ""))
    if mvn is None:
        tried.append("there is no mvn on PATH")
    else:
        tried.append(_fetch(mvn, repository))
        found = _in_repository(repository)
    if found is None:
        found, said = _resolve()
        tried.append(said)
    if found is None:
        names = ", ".join(artifact.file_name for artifact in ARTIFACTS)
        raise JarsMissing(
            f"Spark's Kafka connector is missing: {'; '.join(tried)}. "
            f"Put {names} into a folder and name it"
        )
    return found


def _in_folder(folder: Path) -> list[Path]:
    paths = [(folder / artifact.file_name).absolute() for artifact in ARTIFACTS]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise JarsMissing(f"expected {', '.join(missing)} in {folder}")
    return paths


def _in_repository(repository: Path) -> list[Path] | None:
    paths = [artifact.path_in(repository).absolute() for artifact in ARTIFACTS]
    return paths if all(path.is_file() for path in paths) else None


def _fetch(mvn: str, repository: Path) -> str:
    """Have Maven download the connector and its dependencies; return the outcome as text."""
    return _run(
        [
            mvn,
            "--batch-mode",
            "--quiet",
            f"-Dmaven.repo.local={repository}",
            "dependency:get",
            f"-Dartifact={CONNECTOR}",
        ]
    )[1]


def _resolve() -> tuple[list[Path] | None, str]:
    """Have Spark download the connector in a subprocess; return the paths and the outcome."""
    output, said = _run([sys.executable, "-c", _RESOLVE, CONNECTOR])
    wanted = {artifact.file_name: artifact for artifact in ARTIFACTS}
    for line in output.splitlines():
        word, _, names = line.partition(" ")
        if word != "jars":
            continue
        paths = [Path(name.removeprefix("file://")) for name in names.split(",")]
        found = [path for path in paths for name in wanted if path.name.endswith(name)]
        if len(found) == len(wanted):
            return found, said
    return None, said


def _run(command: list[str]) -> tuple[str, str]:
    """Return a command's output, and its outcome in a few words."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(  # noqa: S603  # fixed commands
            command, capture_output=True, text=True, timeout=_FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"{name} took longer than {_FETCH_S} s"
    if done.returncode == 0:
        return done.stdout, f"{name} succeeded"
    last = (done.stdout + done.stderr).strip().splitlines()[-_LINES_SHOWN:]
    return done.stdout, f"{name} failed: {' | '.join(last)}"
