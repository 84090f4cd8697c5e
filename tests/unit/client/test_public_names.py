"""Names that `raylog` and `raylog.client` offer."""

import ast
import re
from pathlib import Path

import pytest

import raylog
import raylog.client

PAGES = sorted((Path(__file__).resolve().parents[3] / "docs" / "client").glob("*.md"))
DEPRECATED = {
    "BlockingProducer": "Producer",
    "BlockingConsumer": "Consumer",
    "BlockingClient": "Admin",
    "AsyncClient": "AsyncAdmin",
}


@pytest.mark.parametrize("name", raylog.__all__)
def test_each_name_is_that_of_the_client(name: str) -> None:
    assert name in dir(raylog)
    found = getattr(raylog, name)
    assert found is getattr(raylog.client, name, found)


@pytest.mark.parametrize(
    "name", ["Producer", "Consumer", "Admin", "AsyncProducer", "AsyncConsumer", "AsyncAdmin"]
)
def test_clients_have_their_present_names(name: str) -> None:
    assert name in raylog.__all__


@pytest.mark.parametrize(("old", "new"), DEPRECATED.items())
def test_old_names_are_aliases(old: str, new: str) -> None:
    assert old in raylog.__all__
    assert getattr(raylog, old) is getattr(raylog, new)


def test_names_that_the_pages_on_the_client_import() -> None:
    imports = [
        statement
        for page in PAGES
        for statement in re.findall(
            r"^from raylog\.client import (?:\([^)]*\)|.*)", page.read_text(), re.M
        )
    ]
    names = {one.name for node in ast.parse("\n".join(imports)).body for one in _names(node)}
    assert len(names) > 20
    assert names <= set(raylog.client.__all__)


def _names(node: ast.stmt) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) else []
