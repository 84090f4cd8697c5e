"""Java is found as Spark finds it, and the error names it when it is missing or too old."""

from pathlib import Path

import pytest

from raylog.raydp_jobs.java import JavaMissing, find_java


def fake_java(folder: Path, says: str) -> Path:
    """A `java` that answers `-version` as OpenJDK does."""
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return java


def test_java_on_the_path(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    assert find_java({"PATH": str(tmp_path)}) == java


def test_java_home_goes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", 'java version "11.0.2"')
    java = fake_java(tmp_path / "home" / "bin", 'openjdk version "17"')
    environment = {"PATH": str(tmp_path / "old"), "JAVA_HOME": str(tmp_path / "home")}
    assert find_java(environment) == java


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="needs Java 17, and there is no java on PATH"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="no java in JAVA_HOME="):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("says", "found"), [('openjdk version "21.0.1"', "21"), ("no idea", "no version")]
)
def test_another_java(tmp_path: Path, says: str, found: str) -> None:
    fake_java(tmp_path, says)
    with pytest.raises(JavaMissing, match=f"expected Java 17, found {found} at "):
        find_java({"PATH": str(tmp_path)})
