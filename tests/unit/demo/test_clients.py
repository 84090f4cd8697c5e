"""The round trip through two clients, and the digests that are compared."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from raylog.demo import clients
from raylog.testing import EmbeddedBroker


def test_digests_tell_order_null_and_time_apart() -> None:
    def total(*records: tuple[int, int, bytes | None, bytes]) -> str:
        digests = clients.Digests()
        for record in records:
            digests.add(*record)
        return digests.total

    a, b = (0, 1, b"k", b"v"), (0, 2, b"k", b"w")
    assert total(a, b) == total(a, b)
    variants = {
        total(a, b),
        total(b, a),
        total(a),
        total((0, 1, None, b"v"), b),
        total((0, 1, b"", b"v"), b),
        total((0, 9, b"k", b"v"), b),
        total((1, 1, b"k", b"v"), b),
    }
    assert len(variants) == 7


@pytest.fixture
def broker() -> Iterator[str]:
    with EmbeddedBroker() as embedded:
        yield embedded.bootstrap


def test_a_round_trip_agrees(folder: Path, broker: str) -> None:
    said = StringIO()
    assert clients.run(lambda: broker, 3, None, Console(file=said, width=120))
    assert "the digests agree" in said.getvalue()


def test_a_difference_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "run", lambda *_: False)
    monkeypatch.setattr(clients, "check_reachable", lambda _: None)
    answer = CliRunner().invoke(_app(), ["--bootstrap", "127.0.0.1:1"])
    assert answer.exit_code == 1


@pytest.mark.parametrize(
    ("bootstrap", "text"), [("nowhere", "is no address"), ("127.0.0.1:1", "nothing answers")]
)
def test_missing_client_or_topic_is_reported(bootstrap: str, text: str) -> None:
    answer = CliRunner().invoke(_app(), ["--bootstrap", bootstrap])
    assert answer.exit_code == 2
    assert text in answer.stdout


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(clients.clients)
    return app
