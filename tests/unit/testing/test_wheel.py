"""The wheel is complete, and works beside user folders that have our short names."""

import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import raylog

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("actors", "assignors", "loadtest", "raydp_jobs", "storage", "wire")
SCRIPT = """
import sys
import raylog
from raylog.client import EARLIEST, BlockingClient, TopicPartition
from raylog.testing import EmbeddedBroker

assert raylog.__file__.startswith(sys.prefix), raylog.__file__
with EmbeddedBroker() as broker, BlockingClient(broker.bootstrap) as client:
    with client.producer() as producer:
        producer.send("t", b"from the wheel", partition=0)
    consumer = client.consumer()
    consumer.assign({TopicPartition("t", 0): EARLIEST})
    print(consumer.poll(5_000)[0].records[0].value.decode())
assert not {"storage", "wire", "ray"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, which stay as they are."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PACKAGES, "raylog"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, str(source / "dist")],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (built,) = (source / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_module_once(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    expected = {
        os.path.relpath(Path(folder, file), ROOT)
        for folder, _, files in os.walk(ROOT / "raylog", followlinks=True)
        for file in files
        if file.endswith(".py")
    }
    assert packed == expected
    assert "raylog/py.typed" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.long
def test_the_wheel_runs_beside_folders_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, tmp_path / "environment")
    here = tmp_path / "elsewhere"
    for name in ("storage", "wire"):
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text("raise AssertionError('a folder of the user')")
    (here / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for arguments in (["script.py"], ["-c", SCRIPT]):
        result = subprocess.run(
            [str(python), *arguments],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert result.stdout == "from the wheel\n", result.stderr
    command = [str(python.parent / "raylog"), "--version"]
    version = subprocess.run(command, cwd=here, env=environment, capture_output=True, check=True)
    assert version.stdout.decode() == f"{raylog.__version__}\n"


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel into an empty environment; returns its interpreter.

    What Raylog depends on is lent by the present environment, so that no network is needed. Its
    own Raylog is not lent: it stands there as a .pth file, which a path entry does not activate.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    options = ["--no-deps", "--no-index", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *options, wheel],
        check=True,
        timeout=120,
    )
    return python
