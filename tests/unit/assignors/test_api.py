"""Assignors are found by name among installed packages; errors name the one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from raylog.assignors.api import ENTRY_POINT_GROUP, PluginError, available, is_own, load
from raylog.assignors.range import RangeAssignor
from tests.support.plugins import installed

OWN = ["cooperative-sticky", "range", "roundrobin", "sticky", "uniform"]
SOURCE = """
from raylog.assignors.api import Assignor

class Good(Assignor):
    name = "good"
    def assign(self, members, topics):
        return {}

class Misnamed(Good):
    name = "other"

class Raises(Good):
    def __init__(self):
        raise RuntimeError("no licence")

class NoAssignor:
    name = "none"

class Flags(Good):
    name = "flags"
    shares_partitions = "yes"

class MyRange(Good):
    name = "range"
"""


Registers = Callable[..., None]


@pytest.fixture
def register(tmp_path: Path) -> Iterator[Registers]:
    """Installs a package that registers names with classes of SOURCE."""
    with ExitStack() as stack:

        def add(package: str, **entries: str) -> None:
            directory = tmp_path / package
            stack.enter_context(installed(directory, ENTRY_POINT_GROUP, SOURCE, entries, package))

        yield add


def test_raylogs_own_are_registered_as_plugins() -> None:
    assert [each.name for each in available() if each.distribution == "raylog"] == OWN
    for name in OWN:
        assert load(name).name == name
        assert is_own(name)


def test_every_load_gives_a_new_instance() -> None:
    assert load("range") is not load("range")


def test_a_strangers_assignor_is_found_and_described(register: Registers) -> None:
    register("stranger-a", good="Good")
    assert load("good").name == "good"
    assert not is_own("good")
    [described] = [each for each in available() if each.name == "good"]
    assert (described.distribution, described.version) == ("stranger-a", "1.2")
    assert (described.state, described.error) == ("ready", None)


@pytest.mark.parametrize(
    ("name", "target", "text"),
    [
        ("good", "Misnamed", "calls itself 'other', its entry point 'good'"),
        ("good", "Raises", "does not load: RuntimeError: no licence"),
        ("good", "Missing", "does not load: AttributeError"),
        ("none", "NoAssignor", "has no method assign"),
        ("flags", "Flags", "shares_partitions must be True or False"),
    ],
)
def test_failing_plug_in_is_named_in_the_error(
    register: Registers, name: str, target: str, text: str
) -> None:
    register("stranger-b", **{name: target})
    with pytest.raises(PluginError, match=text) as failure:
        load(name)
    assert "from stranger-b 1.2" in str(failure.value)
    [described] = [each for each in available() if each.name == name]
    assert described.state == "failed"
    assert described.error == str(failure.value)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(PluginError, match=r"no assignor 'best' is installed\. There are: .*range"):
        load("best")


def test_plug_in_cannot_replace_a_built_in_assignor(register: Registers) -> None:
    register("stranger-c", range="MyRange")
    assert isinstance(load("range"), RangeAssignor)
    [theirs] = [each for each in available() if each.distribution == "stranger-c"]
    assert theirs.error == "raylog's own assignor of that name is used instead"


def test_one_name_from_two_packages_is_refused(register: Registers) -> None:
    register("stranger-d", good="Good")
    register("stranger-e", good="Good")
    with pytest.raises(PluginError, match="several packages register the assignor 'good'"):
        load("good")
