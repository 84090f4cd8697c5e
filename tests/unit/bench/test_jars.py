"""A missing tool skips a test; a tool that is installed but fails makes the test fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import jars
from tests.conformance.tools import java_tools


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is searched for tools; nothing was fetched before."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("RAYLOG_CACHE", str(tmp_path / "cache"))
    return folder


def _tool(folder: Path, name: str, code: int) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {name} was here\nexit {code}\n")
    path.chmod(0o755)


def test_missing_tool_is_named(tools: Path) -> None:
    with pytest.raises(jars.MissingToolError, match="JDK"):
        jars.fetch()
    _tool(tools, "java", 0)
    _tool(tools, "javac", 0)
    with pytest.raises(jars.MissingToolError, match="mvn"):
        jars.fetch()
    with pytest.raises(pytest.skip.Exception, match="mvn"):
        java_tools()


def test_maven_that_fails_is_no_reason_to_skip(tools: Path) -> None:
    for name in ("java", "javac"):
        _tool(tools, name, 0)
    _tool(tools, "mvn", 1)
    with pytest.raises(jars.ToolFailedError, match="mvn was here"):
        java_tools()


def test_javac_that_fails_is_no_reason_to_skip(tools: Path, tmp_path: Path) -> None:
    _tool(tools, "java", 0)
    _tool(tools, "javac", 1)
    root = tmp_path / "cache" / f"kafka-{jars.KAFKA_VERSION}"
    root.mkdir(parents=True)
    (root / "complete").touch()
    (root / "tools.jsa").touch()
    with pytest.raises(jars.ToolFailedError, match="javac failed"):
        java_tools()
