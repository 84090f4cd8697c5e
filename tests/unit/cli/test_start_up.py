"""The command line starts fast, distinguishes failures, and works without Ray."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from raylog.cli import main
from raylog.cli.failures import CommandFailed
from raylog.cli.start_checks import check_ray_answers

MAP = ("--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,X:PLAINTEXT")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    environment.pop("RAYLOG_DATA", None)
    return subprocess.run(
        [sys.executable, "-m", "raylog.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
        timeout=60,
    )


def imported(code: str) -> set[str]:
    """Modules that are loaded after some code ran in a fresh interpreter."""
    listing = f"{code}\nimport sys\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60
    )
    return set(result.stdout.split())


def test_help_loads_neither_ray_nor_the_client() -> None:
    modules = imported("import raylog.cli.app")
    assert not modules & {"ray", "raylog.client", "raylog.wire.errors", "asyncio", "pydantic"}


def test_help_comes_at_once() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = run("--help")
    took_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert result.returncode == 0
    for command in ("up", "topics", "produce", "consume", "groups", "configs", "plugins"):
        assert command in result.stdout
    assert took_s < 1.5, "0.4 s of the processor's time is usual"


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (
            ("topics", "list", "-b", "127.0.0.1:1"),
            3,
            "Error: no broker can be reached: 127.0.0.1:1",
            "raylog up",
        ),
        (("topics", "list", "-b", "nowhere"), 3, "nowhere:9092", "--bootstrap"),
        (("topics", "list", "-b", "a:b"), 2, "expected host:port, found 'a:b'", ""),
        (("status", "--data", "nothing"), 3, "no cluster is running on nothing", "raylog up"),
        (("down", "--data", "nothing"), 3, "no cluster is running on nothing", "--data"),
        (("up", "--set", "retention=1"), 1, "Unknown configuration key 'retention'", "configs"),
        (("up", "--set", "num.partitions=0"), 1, "Value must be at least 1", ""),
        (
            ("up", "--set", "queued.max.request.bytes=1"),
            1,
            "queued.max.request.bytes (1) must be greater than or equal to",
            "-1 for no limit",
        ),
        (("up", "--set", "max.connections.per.ip=0"), 1, "per.ip.overrides property is set", ""),
        (("up", "--config", "/"), 2, "'/' is a directory", ""),
        (("up", "--set", "listeners=x"), 1, "Unable to parse x to a broker endpoint", ""),
        (("up", "--set", "link.port.range=9"), 1, "must look like 20000-20099, not 9", ""),
        (
            ("up", "-n", "2", "--set", "listeners=PLAINTEXT://127.0.0.1:1,X://127.0.0.1:2", *MAP),
            2,
            "X of broker 1 and PLAINTEXT of broker 2 would listen on the same port 2",
            "Leave a gap of 2 between the ports",
        ),
        (
            ("up", "--host", "0.0.0.0"),
            1,
            "meta-address 0.0.0.0",
            "--advertised-host HOST --insecure",
        ),
        (("up", "--host", "::", "--insecure"), 1, "meta-address ::", "--advertised-host"),
        (("up", "--advertised-host", "0"), 1, "meta-address 0", "--advertised-host"),
        (("up", "--host", "192.0.2.1"), 1, "other machines can reach 192.0.2.1", "--insecure"),
        (
            ("up", "--host", "0.0.0.0", "--advertised-host", "here"),
            1,
            "other machines can reach 0.0.0.0",
            "--insecure",
        ),
        (
            ("up", "--host", "192.0.2.1", "--insecure"),
            1,
            "cannot listen on 192.0.2.1:9092",
            "Give --host an address or a name of this machine",
        ),
        (("up", "--host", "192.0.2.1", "-p", "0", "--insecure"), 1, "192.0.2.1:0", "--host"),
        (("up", "--port", "65535", "--brokers", "2"), 2, "need ports up to 65536", "--port"),
        (("up", "--address", "here"), 2, "--address: expected HOST:PORT or auto", ""),
        (
            ("up", "--port", "0", "--address", "127.0.0.1:1"),
            3,
            "cannot reach Ray at 127.0.0.1:1: Connection refused",
            "omit --address",
        ),
        (("up", "--config", "missing.toml"), 2, "missing.toml", ""),
        (("up", "--brokers", "0"), 2, "--brokers", ""),
    ],
)
def test_failures_say_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["raylog", *arguments])
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("RAYLOG_DATA", raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert ended.value.code == code, errors
    assert message in " ".join(errors.split())
    assert hint in errors
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


def test_settings_are_listed_for_those_who_do_not_know_the_key(tmp_path: Path) -> None:
    assert "raylog configs" not in run("up", "--set", "num.partitions=0", cwd=tmp_path).stderr


def test_a_settings_file_that_is_no_text_is_reported_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "settings").write_bytes(b"num.partitions=1\n\xff\x00")
    result = run("up", "--config", "settings", cwd=tmp_path)
    assert result.returncode == 2
    assert "settings: expected TOML or KEY=VALUE lines in UTF-8, found byte 0xff at 17" in " ".join(
        result.stderr.split()
    )


def identity(cluster_id: str, broker_id: int) -> str:
    return json.dumps(
        {
            "version": 1,
            "cluster_id": cluster_id,
            "broker_id": broker_id,
            "directory_id": "d",
            "voters": [[0, "d"]],
        }
    )


def test_directories_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    for name, owner in (("broker-0", ("a", 0)), ("broker-1", ("b", 1))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.json").write_text(identity(*owner))
    result = run("up", "--data", ".", cwd=tmp_path)
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert "brokers of different clusters: broker-0 of a, broker-1 of b." in said
    assert "move the others out" in said


def test_a_copy_of_a_brokers_directory_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "broker-0.old").mkdir()
    (tmp_path / "broker-0.old" / "meta.json").write_text(identity("a", 0))
    (tmp_path / "broker-0.tar").write_bytes(b"no directory")
    result = run("up", "--data", ".", cwd=tmp_path)
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert "broker-0.old holds broker 0, which is expected in broker-0. Rename it, or move" in said


def test_a_majority_of_voters_whose_directories_are_gone_is_reported_at_once(
    tmp_path: Path,
) -> None:
    """It was waited for, for a minute, without advice."""
    (tmp_path / "broker-2").mkdir()
    voters = [[0, "d0"], [1, "d1"], [2, "d"]]
    contents = json.dumps(json.loads(identity("a", 2)) | {"voters": voters})
    (tmp_path / "broker-2" / "meta.json").write_text(contents)
    result = run("up", "--data", ".", cwd=tmp_path)
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert "the metadata is lost: the directories of the voters 0, 1 are missing" in said
    assert "raylog metadata rebuild --data ." in said


def test_a_directory_of_a_newer_build_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "broker-0").mkdir()
    newer = identity("a", 0).replace('"version": 1', '"version": 9')
    (tmp_path / "broker-0" / "meta.json").write_text(newer)
    result = run("up", "--data", ".", cwd=tmp_path)
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert "meta.json has format 9, this build knows 1. Use the build that wrote it" in said
    assert "raylog status" not in said


@pytest.mark.parametrize("command", ["up", "status", "down"])
def test_a_record_of_a_cluster_that_is_damaged_is_named(tmp_path: Path, command: str) -> None:
    run_directory = tmp_path / "run"
    run_directory.mkdir()
    (run_directory / "cluster.json").write_bytes(b"")
    result = run(command, "--data", ".", cwd=tmp_path)
    assert result.returncode == 1
    assert "run/cluster.json is damaged, or of another build" in " ".join(result.stderr.split())
    assert "remove the file: it contains no data" in " ".join(result.stderr.split())
    (run_directory / "cluster.json").unlink()
    (run_directory / "ray-0.json").write_text("[]")
    result = run(command, "--data", ".", cwd=tmp_path)
    if command != "status":  # which needs no Ray where no cluster is recorded
        assert "ray-0.json is damaged, or of another build" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_place_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where a directory is expected")
    result = run("up", "--port", "0", "--data", ".", cwd=tmp_path)
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    assert "/run: File exists Remove or rename it, or choose another directory" in said


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("up", "--port", str(port), "--data", "data", cwd=tmp_path)
    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_address_that_is_not_ray_is_detected_before_importing_ray(answer: bytes) -> None:
    with Answering(answer) as address, pytest.raises(CommandFailed) as raised:
        check_ray_answers(address)
    assert raised.value.failure.message == f"no Ray cluster answers at {address}"


def test_address_that_speaks_grpc_may_be_ray() -> None:
    with Answering(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6)) as address:
        check_ray_answers(address)


class Answering:
    """A server that answers one connection, whatever it sends, and closes it."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> str:
        self._thread.start()
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(self._answer)


def test_shell_completion_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_RAYLOG_COMPLETE": "complete_bash",
        "COMP_WORDS": "raylog to",
        "COMP_CWORD": "1",
    }
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'raylog'\nfrom raylog.cli import main\nmain()",
        ],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=60,
    )
    assert "topics" in result.stdout
