"""Every example in README.md and docs/client runs, and passes mypy as a user's program must."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from raylog.testing import EmbeddedBroker
from raylog.wire.errors import KafkaError
from tests.support.doc_examples import PAGES, REGISTRY, ROOT, Example, examples_of, is_like
from tests.worlds.servers import registry as fake_registry

SECONDS_MAX = 90
PUBLIC = (
    "raylog",
    "raylog.client",
    "raylog.client.arrow",
    "raylog.client.interceptors",
    "raylog.client.opentelemetry",
    "raylog.client.parallel",
    "raylog.client.schemas",
    "raylog.client.serializers",
    "raylog.eos",
    "raylog.testing",
    "raylog.wire.errors",
)
"""What a program may import. A module's names are those of its `__all__`, or its exceptions."""

FIRST = ("README", "producer", "consumer")
"""Pages whose examples run in make test."""

MYPY_SETTINGS = """\
[mypy]
strict = True
warn_unreachable = True
explicit_package_bases = True
[mypy-raylog.*]
follow_imports = silent
[mypy-pyarrow.*,pandas.*,confluent_kafka.*,aiokafka.*,kafka.*,gevent.*,ray.*,fastavro.*]
ignore_missing_imports = True
"""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.stem in FIRST else pytest.mark.long)
        for page in PAGES
    ],
)
def test_every_example_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path, tmp_path: Path
) -> None:
    examples = [example for example in examples_of(page) if example.runs]
    if not examples:
        return
    failures = []
    with EmbeddedBroker(brokers=1) as broker, fake_registry.running() as registry:
        registry_address = registry.url.removeprefix("http://")
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAYLOG_BOOTSTRAP": broker.bootstrap,
        }
        for example in examples:
            addresses = broker.bootstrap, registry_address
            failure = _failure_of(example, addresses, environment, tmp_path)
            if failure is not None:
                failures.append(f"{example.where}: {failure}")
    assert not failures, "\n\n".join(failures)


@pytest.mark.long
def test_every_example_is_typed_as_a_program_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(MYPY_SETTINGS)
    found = {}
    for example in (one for page in PAGES for one in examples_of(page) if one.is_typed):
        (tmp_path / f"{example.name}.py").write_text(example.program())
        found[example.name] = example.where
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file=mypy.ini",
            f"--cache-dir={ROOT / '.cache' / 'mypy-examples'}",
            *(f"{name}.py" for name in found),
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}\n(3 lines are put before)"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_use_public_names_only(page: Path) -> None:
    for example in examples_of(page):
        if example.language == "python":
            _check_imports(example)


def _failure_of(
    example: Example, addresses: tuple[str, str], environment: dict[str, str], directory: Path
) -> str | None:
    """Run an example; what it did otherwise than the page says."""
    if example.language == "python":
        program = directory / f"{example.name}.py"
        program.write_text(example.program(*addresses))
        return _run([sys.executable, str(program)], example.output, environment, directory)
    for command, shown in example.commands():
        asked = command.replace(REGISTRY, addresses[1])
        failure = _run(["bash", "-ec", asked], shown, environment, directory)
        if failure is not None:
            return f"$ {command}\n{failure}"
    return None


def _run(
    command: list[str], shown: str | None, environment: dict[str, str], directory: Path
) -> str | None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    if shown is not None and not is_like(shown, done.stdout):
        return f"the page shows\n{shown}\nand it printed\n{done.stdout}"
    return None


def _check_imports(example: Example) -> None:
    """No import of ours but of public modules and names."""
    for node in ast.walk(ast.parse(example.text)):
        if isinstance(node, ast.Import):
            ours = [one.name for one in node.names if one.name.partition(".")[0] == "raylog"]
            assert set(ours) <= set(PUBLIC), f"{example.where}: {ours}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "raylog":
            assert node.module in PUBLIC, f"{example.where}: {node.module} is not public"
            names = {one.name for one in node.names}
            modules = {one.rpartition(".")[2] for one in PUBLIC if one.startswith(node.module)}
            public = _public_names(importlib.import_module(node.module)) | modules
            assert names <= public, f"{example.where}: {names - public} of {node.module}"


def _public_names(module: ModuleType) -> set[str]:
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {name for name, one in vars(module).items() if _is_kafka_error(one)}


def _is_kafka_error(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, KafkaError)
