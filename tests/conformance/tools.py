"""Command-line clients, run as processes."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from bench import jars
from bench.wireprobe import JOIN_GROUP, api_versions

TOOLS = "org.apache.kafka.tools"
CLIENTS = Path(__file__).parents[1] / "support" / "java"
"""Sources of Java programs that tests run."""
DEADLINE_S = 60


@cache
def java_tools(sources: Path = jars.SOURCES) -> jars.KafkaJars:
    """Apache Kafka's jars and our own classes; the test is skipped, saying why, without them."""
    try:
        return jars.fetch(sources)
    except jars.MissingToolError as missing:
        pytest.skip(f"Java tools: {missing}")


def kcat() -> str:
    """The path of kcat; the test is skipped where it is not installed."""
    path = shutil.which("kcat")
    if path is None:
        pytest.skip("kcat is not installed")
    return path


def has_groups(bootstrap: str) -> bool:
    """Whether the broker serves consumer groups."""
    return JOIN_GROUP in api_versions(bootstrap.split(",")[0])


def run(*command: str, given: bytes = b"", accept_failure: bool = False) -> bytes:
    """What the command prints; its failure is the test's, unless that is accepted."""
    done = subprocess.run(
        command, input=given, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert accept_failure or done.returncode == 0, (
        f"{command[-8:]}: {done.stdout!r} {done.stderr.decode()}"
    )
    return done.stdout


def java(
    main: str,
    *arguments: str,
    given: bytes = b"",
    accept_failure: bool = False,
    sources: Path = jars.SOURCES,
) -> str:
    """Run a main class of Apache Kafka's tools, or one of the sources, with a small heap."""
    command = java_tools(sources).brief(main, *arguments)
    return run(*command, given=given, accept_failure=accept_failure).decode()
