"""Command-line clients, run as processes."""

import shutil
import subprocess

import pytest

from bench import jars

TOOLS = "org.apache.kafka.tools"
DEADLINE_S = 60


def java_tools() -> jars.KafkaJars:
    """Apache Kafka's jars; the test is skipped, saying why, where they cannot be had."""
    try:
        return jars.fetch()
    except jars.MissingToolError as missing:
        pytest.skip(f"Java tools: {missing}")


def kcat() -> str:
    """The path of kcat; the test is skipped where it is not installed."""
    path = shutil.which("kcat")
    if path is None:
        pytest.skip("kcat is not installed")
    return path


def run(*command: str, given: bytes = b"") -> bytes:
    """What the command prints; its failure is the test's."""
    done = subprocess.run(
        command, input=given, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{command[-8:]}: {done.stdout!r} {done.stderr.decode()}"
    return done.stdout


def java(main: str, *arguments: str, given: bytes = b"") -> str:
    """Run a main class of Apache Kafka's tools, or one of ours, with a small heap."""
    command = java_tools().command(main, *arguments, heap="256M")
    return run(*command, given=given).decode()
