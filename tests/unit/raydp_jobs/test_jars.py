"""The connector's jars: a folder, the local repository, Maven, Spark's resolver, in this order."""

import sys
from pathlib import Path

import pytest

from raylog.raydp_jobs import jars
from raylog.raydp_jobs.jars import ARTIFACTS, JarsMissing, connector_jars
from raylog.raydp_jobs.session import spark_configs


def fill(repository: Path) -> list[Path]:
    """A local Maven repository that has them."""
    paths = [artifact.path_in(repository) for artifact in ARTIFACTS]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.touch()
    return paths


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_folder(tmp_path: Path) -> None:
    for artifact in ARTIFACTS:
        (tmp_path / artifact.file_name).touch()
    assert [path.name for path in connector_jars(tmp_path)] == [
        "spark-sql-kafka-0-10_2.12-3.5.7.jar",
        "spark-token-provider-kafka-0-10_2.12-3.5.7.jar",
        "kafka-clients-3.4.1.jar",
        "commons-pool2-2.11.1.jar",
    ]


def test_a_folder_without_them(tmp_path: Path) -> None:
    (tmp_path / ARTIFACTS[0].file_name).touch()
    with pytest.raises(JarsMissing, match=r"expected spark-token.*, commons-pool2-2.11.1.jar in "):
        connector_jars(tmp_path)


def test_the_local_repository_needs_no_maven(tmp_path: Path) -> None:
    paths = fill(tmp_path)
    assert connector_jars(environment={"MAVEN_REPO_LOCAL": str(tmp_path), "PATH": ""}) == paths


def test_maven_fetches_into_the_local_repository(tmp_path: Path) -> None:
    repository, bin_folder = tmp_path / "m2", tmp_path / "bin"
    folders = " ".join(str(artifact.path_in(repository).parent) for artifact in ARTIFACTS)
    files = " ".join(str(artifact.path_in(repository)) for artifact in ARTIFACTS)
    script(bin_folder / "mvn", f"/bin/mkdir -p {folders}; /usr/bin/touch {files}")
    environment = {"MAVEN_REPO_LOCAL": str(repository), "PATH": str(bin_folder)}
    found = connector_jars(environment=environment)
    assert [path.name for path in found] == [artifact.file_name for artifact in ARTIFACTS]


def test_sparks_resolver_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ivy's names begin with the group."""
    names = ",".join(f"file:///ivy/{one.group}_{one.file_name}" for one in ARTIFACTS)
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", f"echo jars {names}")))
    found = connector_jars(environment={"MAVEN_REPO_LOCAL": str(tmp_path), "PATH": ""})
    assert found == [Path(f"/ivy/{one.group}_{one.file_name}") for one in ARTIFACTS]


def test_all_that_was_tried_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", "exit 1")))
    with pytest.raises(JarsMissing) as raised:
        connector_jars(environment={"MAVEN_REPO_LOCAL": str(tmp_path), "PATH": ""})
    text = str(raised.value)
    for part in ("does not have them", "no mvn on PATH", "python failed", "kafka-clients-3.4.1"):
        assert part in text


def test_maven_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", "exit 1")))
    script(tmp_path / "bin" / "mvn", "echo no route; exit 1")
    with pytest.raises(JarsMissing, match="mvn failed: no route"):
        connector_jars(
            environment={"MAVEN_REPO_LOCAL": str(tmp_path), "PATH": str(tmp_path / "bin")}
        )


def test_a_fetch_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_FETCH_S", 0.01)
    monkeypatch.setattr(sys, "executable", str(script(tmp_path / "python", "exec /bin/sleep 5")))
    with pytest.raises(JarsMissing, match="took longer"):
        connector_jars(environment={"MAVEN_REPO_LOCAL": str(tmp_path), "PATH": ""})


def test_jars_go_to_executors_as_paths() -> None:
    """RayDP ignores spark.jars.packages."""
    configs = spark_configs([Path("/a.jar"), Path("/b.jar")], "127.0.0.1", {})
    assert configs["spark.jars"] == "/a.jar,/b.jar"
    assert configs["spark.driver.host"] == "127.0.0.1"


def test_the_users_settings_win() -> None:
    configs = spark_configs([], "10.0.0.1", {"spark.ui.enabled": "true"})
    assert configs["spark.ui.enabled"] == "true"
    assert "spark.driver.host" not in configs
