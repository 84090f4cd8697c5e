"""Assignors are found by name among installed packages, and what fails is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.assignors.api import PluginError, available, is_own, load
from raylog.assignors.range import RangeAssignor
from tests.support.plugins import install

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


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def entry(**targets: str) -> str:
    lines = [f"{name} = {target}" for name, target in targets.items()]
    return "\n".join(["[raylog.assignors]", *lines])


def test_raylogs_own_are_registered_as_plugins() -> None:
    assert [each.name for each in available() if each.distribution == "raylog"] == OWN
    for name in OWN:
        assert load(name).name == name
        assert is_own(name)


def test_every_load_gives_a_new_instance() -> None:
    assert load("range") is not load("range")


def test_a_strangers_assignor_is_found_and_described(site: Path) -> None:
    install(site, "stranger_a", SOURCE, entry(good="stranger_a:Good"), "2.5")
    assert load("good").name == "good"
    assert not is_own("good")
    [described] = [each for each in available() if each.name == "good"]
    assert (described.distribution, described.version) == ("stranger_a", "2.5")
    assert (described.state, described.error) == ("ready", None)


@pytest.mark.parametrize(
    ("name", "target", "text"),
    [
        ("good", "stranger_b:Misnamed", "calls itself 'other', its entry point 'good'"),
        ("good", "stranger_b:Raises", "does not load: RuntimeError: no licence"),
        ("good", "stranger_b:Missing", "does not load: AttributeError"),
        ("good", "missing_module:Good", "does not load: ModuleNotFoundError"),
        ("none", "stranger_b:NoAssignor", "has no method assign"),
        ("flags", "stranger_b:Flags", "shares_partitions must be True or False"),
    ],
)
def test_what_fails_is_named(site: Path, name: str, target: str, text: str) -> None:
    install(site, "stranger_b", SOURCE, entry(**{name: target}))
    with pytest.raises(PluginError, match=text) as failure:
        load(name)
    assert "from stranger_b 1.0" in str(failure.value)
    [described] = [each for each in available() if each.name == name]
    assert described.state == "failed"
    assert described.error == str(failure.value)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(PluginError, match=r"no assignor 'best' is installed; there are: .*range"):
        load("best")


def test_nobody_replaces_raylogs_own(site: Path) -> None:
    install(site, "stranger_c", SOURCE, entry(range="stranger_c:MyRange"))
    assert isinstance(load("range"), RangeAssignor)
    [theirs] = [each for each in available() if each.distribution == "stranger_c"]
    assert theirs.error == "raylog's own assignor of that name is used instead"


def test_one_name_from_two_packages_is_refused(site: Path) -> None:
    install(site, "stranger_d", SOURCE, entry(good="stranger_d:Good"))
    install(site, "stranger_e", SOURCE, entry(good="stranger_e:Good"))
    with pytest.raises(PluginError, match="several packages register an assignor 'good'"):
        load("good")
