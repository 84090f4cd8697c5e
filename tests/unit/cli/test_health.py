"""`raylog health` with brokers in this process, and with servers that are none."""

import json
import socket
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.testing import EmbeddedBroker
from tests.support.ports import free_port


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["health", *arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_a_broker_that_serves_and_one_that_is_gone() -> None:
    serving, gone = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with EmbeddedBroker(settings={"health.listener": serving}, first_broker_id=7):
        code, output = run("--address", serving, "--json")
        assert code == 0
        report = json.loads(output)
        assert (report["healthy"], report["partitions"]) == (True, None)
        assert report["brokers"] == [
            {
                "broker": 7,
                "ready": True,
                "state": "running",
                "reasons": [],
                "partitions": 0,
                "offline_partitions": 0,
                "listener": serving,
            }
        ]
        code, output = run("--address", serving, "--address", gone)
        assert code == 1
        assert f"{gone}: does not answer" in output


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b'HTTP/1.1 200 OK\r\n\r\n{"reasons": 1, "ready": 1}',
        b"",
    ],
)
def test_answer_of_another_server_is_unhealthy(answer: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    code, output = run("--address", f"127.0.0.1:{listener.getsockname()[1]}")
    thread.join()
    listener.close()
    assert code == 1
    assert "not that of a broker's health" in output or "does not answer" in output


def test_where_no_cluster_runs_there_is_no_health(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["health", "--data", str(tmp_path)])
    assert "no cluster is running" in str(result.exception)
    assert CliRunner().invoke(app, ["health", "--address", "there"]).exit_code == 2
