"""The table names the readers of each key, and no module reads a key missing from the table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import raylog
from raylog.actors import config
from raylog.actors.config import KEYS_OF, ConfigKey, ResourceType, find_key
from raylog.actors.coordinator_kinds import KINDS

ROOT = Path(raylog.__file__).parent
ACTORS = ROOT / "actors"
KEYS = [key for keys in KEYS_OF.values() for key in keys.values()]
READS = {"number", "flag", "raw", "items", "value", "effective", "setting"}
"""Methods and functions that are given the name of a broker key."""


@cache
def module(name: str) -> ast.AST:
    path = ACTORS.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


@cache
def names_in(module_name: str) -> tuple[set[str], list[re.Pattern[str]]]:
    """The texts of a module, and its formatted texts, such as f"group.{protocol}.min.{rest}"."""
    texts, patterns = set(), []
    for node in ast.walk(module(module_name)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [
                re.escape(str(one.value)) if isinstance(one, ast.Constant) else "[a-z0-9.]+"
                for one in node.values
            ]
            patterns.append(re.compile("".join(parts)))
    return texts, patterns


def is_named(key: str, module_name: str) -> bool:
    texts, patterns = names_in(module_name)
    return key in texts or any(pattern.fullmatch(key) for pattern in patterns)


def name_read(key: ConfigKey) -> str:
    """The name that its reader has: of a broker key that is a topic key's default, the topic's."""
    topic_keys = KEYS_OF[ResourceType.TOPIC].values()
    of_topic = (one.name for one in topic_keys if key.name in one.synonyms)
    return next(of_topic, key.name) if key.scope is ResourceType.BROKER else key.name


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.scope.name}-{key.name}")
def test_a_setting_has_a_reader_or_says_that_it_has_none(key: ConfigKey) -> None:
    assert bool(key.reader) == ("without effect" not in key.documentation)
    if key.reader:
        assert is_named(name_read(key), key.reader), f"{key.reader} does not name it"


def test_a_key_that_a_module_does_not_name_is_noticed() -> None:
    assert not is_named("queued.max.request.bytes", "group.rules.settings")
    assert is_named("group.max.size", "group.rules.settings")


def read_keys() -> Iterator[tuple[str, str]]:
    """Every text that is given to something that reads broker keys, with its module."""
    for path in [*ACTORS.resolve().rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if called in READS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield path.name, first.value


def test_every_key_that_is_read_is_in_the_table() -> None:
    read = list(read_keys())
    assert len(read) > 60
    for _, name in read:
        assert find_key(config.BROKER_KEYS, name).name == name
    for kind in KINDS.values():
        for rest in ("num.partitions", "replication.factor", "segment.bytes"):
            assert f"{kind.settings}.{rest}" in config.BROKER_KEYS
