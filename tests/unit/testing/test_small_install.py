"""`pip install raylog` without extras: its contents, what runs, and the extras that errors name."""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from raylog.extras import MissingExtra, check, extra_of, needs

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MIB = 1 << 20
SIZE_MAX = 64 * MIB
PYTEST = ("pytest",)
"""What a test of a user's needs besides."""

PROGRAM = """
import sys
from raylog.client import EARLIEST, BlockingClient, Codec, ProducerSettings, TopicPartition
from raylog.testing import EmbeddedBroker

with EmbeddedBroker() as broker, BlockingClient(broker.bootstrap) as client:
    for codec in Codec:
        with client.producer(ProducerSettings(codec=codec)) as producer:
            producer.send("t", codec.name.encode(), partition=0)
    consumer = client.consumer()
    consumer.assign({TopicPartition("t", 0): EARLIEST})
    found = []
    while len(found) < len(Codec):
        found += [record.value.decode() for got in consumer.poll(5_000) for record in got.records]
print(*found)
"""
TEST_OF_A_USER = """
def test_a_record(raylog_broker):
    from raylog.client import BlockingClient

    with BlockingClient(raylog_broker.bootstrap) as client, client.producer() as producer:
        producer.send("t", b"hello")
"""


def brought_by(names: tuple[str, ...]) -> dict[str, importlib.metadata.Distribution]:
    """Distributions that are installed with some, those included, as this environment has them."""
    found: dict[str, importlib.metadata.Distribution] = {}
    left = [Requirement(name) for name in names]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        for text in found[name].requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                left.append(needed)
    return found


def size_of(distribution: importlib.metadata.Distribution) -> int:
    """Bytes of a distribution's files, by its RECORD."""
    return sum(file.size or 0 for file in distribution.files or ())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `pip install raylog pytest` installs, and Raylog, and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    for distribution in brought_by((*PROJECT["dependencies"], *PYTEST)).values():
        for file in distribution.files or ():
            top = file.parts[0]
            place = folder / top
            if top not in ("..", "__pycache__") and not place.exists():
                place.symlink_to(Path(str(distribution.locate_file(top))))
    (folder / "raylog").symlink_to(ROOT / "raylog")
    return folder


def run(small: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with that folder alone beside the standard library."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=directory,
        env={**inherited, "PYTHONPATH": str(small)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_client_and_embedded_broker_run_with_all_codecs(small: Path, tmp_path: Path) -> None:
    done = run(small, tmp_path, "-c", PROGRAM)
    assert done.stdout == "NONE GZIP SNAPPY LZ4 ZSTD\n", done.stderr


def test_the_pytest_fixture_runs(small: Path, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST_OF_A_USER)
    options = ("-p", "raylog.testing.plugin", "-p", "no:cacheprovider", "-q")
    done = run(small, tmp_path, "-m", "pytest", *options, "test_mine.py")
    assert "1 passed" in done.stdout, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("from raylog.cli import main; main()", "The command raylog needs the package typer"),
        ("from raylog.ray_data import read", "raylog.ray_data needs the package"),
        (
            "from raylog.raydp_jobs.session import spark_session\nwith spark_session(): pass",
            "spark",
        ),
    ],
)
def test_feature_that_needs_an_extra_names_it(
    small: Path, tmp_path: Path, program: str, expected: str
) -> None:
    done = run(small, tmp_path, "-c", program)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0
    assert expected in last
    assert "pip install 'raylog[" in last


def test_the_size_of_what_is_installed_is_bounded() -> None:
    sizes = {name: size_of(one) for name, one in brought_by(tuple(PROJECT["dependencies"])).items()}
    assert not {"ray", "pyspark", "pyarrow", "numpy", "typer", "rich", "pytest"} & sizes.keys()
    assert sum(sizes.values()) < SIZE_MAX, sizes


def test_every_extra_that_a_message_names_exists_and_brings_the_package() -> None:
    from raylog.extras import _PACKAGES

    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    providers = importlib.metadata.packages_distributions()
    for extra, packages in _PACKAGES.items():
        brought = brought_by(tuple(_unfolded(extras, extra)))
        for package in packages:
            assert {canonicalize_name(name) for name in providers[package]} & brought.keys(), (
                f"{extra} does not bring {package}"
            )


def _unfolded(extras: dict[str, list[str]], extra: str) -> list[str]:
    """What an extra needs, those of other extras of ours included."""
    found = []
    for text in extras[extra]:
        needed = Requirement(text)
        if needed.name == "raylog":
            for inner in needed.extras:
                found += _unfolded(extras, inner)
        else:
            found.append(text)
    return found


def test_an_extra_that_is_missing_is_named_once_and_clearly() -> None:
    with (
        pytest.raises(MissingExtra) as missing,
        needs("arrow", "poll_table"),
    ):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.compute")
    assert str(missing.value) == (
        "poll_table needs the package pyarrow, which is not installed: pip install 'raylog[arrow]'"
    )
    with pytest.raises(ModuleNotFoundError, match="other"), needs("arrow", "poll_table"):
        raise ModuleNotFoundError("No module named 'other'", name="other")
    check("cli", "raylog")
    assert extra_of(ModuleNotFoundError(name="ray.util")) == "ray"
    assert extra_of(ModuleNotFoundError(name="something_else")) is None
