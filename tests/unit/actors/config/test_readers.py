"""Every setting that is documented is read by something, or says that it has no effect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import raylog
from raylog.actors.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey

ROOT = Path(raylog.__file__).parent
READERS = ("actors", "storage", "assignors", "cli")
TABLES = {"config_keys.py", "config_broker_keys.py", "config_agreement.py"}
NO_EFFECT = "without effect"
TOPIC_KEY_OF = {synonym.name: key.name for key in TOPIC_KEYS.values() for synonym in key.synonyms}
"""Broker keys that are the defaults of topic keys: whoever reads these reads them."""


class Texts(NamedTuple):
    """What code says."""

    whole: set[str]
    patterns: list[re.Pattern[str]]
    """Of formatted texts, such as f"group.{protocol}.min.{rest}"."""
    ends: set[str]
    """Texts that are put behind others, such as ".replication.factor"."""

    def name(self, key: str) -> bool:
        """Whether a key is among them."""
        return (
            key in self.whole
            or any(pattern.fullmatch(key) for pattern in self.patterns)
            or any(key.endswith(end) for end in self.ends)
        )


def modules() -> Iterator[ast.AST]:
    """The modules of a broker and of its command line, but for tables of keys and their rules."""
    for package in READERS:
        for path in (ROOT / package).resolve().rglob("*.py"):
            if path.name not in TABLES:
                yield ast.parse(path.read_text())


@pytest.fixture(scope="module")
def said() -> Texts:
    found = Texts(set(), [], set())
    for node in (node for module in modules() for node in ast.walk(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.whole.add(node.value)
            if re.fullmatch(r"(\.[a-z]+){2,}", node.value):
                found.ends.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else None for one in node.values]
            known = [str(part) for part in parts if part is not None]
            if any(re.search(r"[a-z]\.|\.[a-z]", part) for part in known):
                pattern = "".join(".+" if part is None else re.escape(str(part)) for part in parts)
                found.patterns.append(re.compile(pattern))
    return found


def is_read(name: str, said: Texts) -> bool:
    return said.name(TOPIC_KEY_OF.get(name, name))


@pytest.mark.parametrize(
    "key",
    [*BROKER_KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values()],
    ids=lambda key: key.name,
)
def test_a_setting_has_a_reader_or_says_that_it_has_none(key: ConfigKey, said: Texts) -> None:
    assert is_read(key.name, said) == (NO_EFFECT not in key.documentation)


def test_nobody_reads_what_is_no_setting(said: Texts) -> None:
    """The test would notice."""
    assert not is_read("queued.max.response.bytes", said)
    assert not is_read("group.consumer.max.hunger.ms.x", said._replace(patterns=[]))
