"""Finding interceptors: registered packages, wrong ones, options and the files they may name."""

from __future__ import annotations

import asyncio
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.interceptors import loading
from raylog.actors.interceptors.api import ENTRY_POINT_GROUP, Wanted
from raylog.actors.interceptors.chain import InterceptorsUnusable
from raylog.actors.interceptors.learning import have_learned
from raylog.assignors import plugins
from raylog.assignors.api import PluginError
from tests.support.plugins import installed
from tests.support.plugins import installed as installed_in

CODE = """
    from raylog.actors.interceptors.api import Interceptor

    class Mask(Interceptor):
        name = "mask"
        def configure(self, options):
            self.options = dict(options)

    class Dotted(Mask):
        name = "mask.deep"

    class Picky(Interceptor):
        name = "picky"
        def configure(self, options):
            raise ValueError("give it fields")

    class Misnamed(Interceptor):
        name = "other"

    class Half:
        name = "half"
        def configure(self, options): pass
        def on_produce(self, topic, records): return records

    class Breaks(Interceptor):
        name = "breaks"
        def __init__(self): raise OSError("no licence")
"""
ENTRIES = {
    "mask": "Mask",
    "mask.deep": "Dotted",
    "picky": "Picky",
    "misnamed": "Misnamed",
    "half": "Half",
    "breaks": "Breaks",
    "absent": "Nowhere",
}


@pytest.fixture(autouse=True)
def strangers(tmp_path: Path) -> object:
    with installed(tmp_path / "strangers", ENTRY_POINT_GROUP, CODE, ENTRIES):
        yield


def wanted(*names: str, **options: str) -> Wanted:
    return Wanted("t", names, tuple(sorted((k.replace("_", "."), v) for k, v in options.items())))


def test_names_are_found_without_importing_anything() -> None:
    assert {*ENTRIES, "json-schema"} <= set(loading.names())
    assert "strangers_plugin" not in sys.modules


def test_a_chain_has_them_in_the_order_asked_for_with_their_options() -> None:
    chain = loading.load_chain(
        wanted("mask.deep", "mask", mask_deep_a="1", mask_b_c="2", picky_x="3"), None
    )
    assert [one.name for one in chain.interceptors] == ["mask.deep", "mask"]
    assert [one.options for one in chain.interceptors] == [  # type: ignore[attr-defined]  # theirs
        {"a": "1"},
        {"b.c": "2"},
    ]


def test_each_topic_has_instances_of_its_own() -> None:
    first, second = (loading.load_chain(wanted("mask"), None) for _ in range(2))
    assert first.interceptors[0] is not second.interceptors[0]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("maks", "no interceptor 'maks' is installed; did you mean mask? There are: absent, "),
        ("zzz", "no interceptor 'zzz' is installed. There are: "),
        ("picky", "interceptor 'picky' refuses its options: give it fields"),
        (
            "misnamed",
            "interceptor 'misnamed' (strangers_plugin:Misnamed, from strangers 1.2) calls itself "
            "'other'",
        ),
        ("half", "has no method on_fetch: inherit from raylog.actors.interceptors.api.Interceptor"),
        ("breaks", "does not load: OSError: no licence"),
        ("absent", "does not load: AttributeError"),
    ],
)
def test_unusable_interceptor_is_named_in_the_error(name: str, says: str) -> None:
    with pytest.raises(InterceptorsUnusable) as unusable:
        loading.load_chain(wanted(name), None)
    assert says in str(unusable.value)


def test_names_are_checked_without_running_code() -> None:
    loading.require(["mask", "breaks"])
    with pytest.raises(PluginError, match="did you mean picky"):
        loading.require(["mask", "piky"])
    assert "strangers_plugin" not in sys.modules


def test_options_belong_to_the_longest_name_that_fits() -> None:
    assert loading.option_of("mask.deep.a.b") == ("mask.deep", "a.b")
    assert loading.option_of("mask.deeper") == ("mask", "deeper")
    with pytest.raises(PluginError, match="did you mean mask"):
        loading.option_of("mesk.a")


def test_all_are_described_with_origin_and_state() -> None:
    described = {one.name: one for one in loading.available()}
    assert (described["mask"].distribution, described["mask"].version) == ("strangers", "1.2")
    assert (described["mask"].state, described["mask"].target) == ("ready", "strangers_plugin:Mask")
    assert described["json-schema"].distribution == "raylog"
    assert described["json-schema"].state == "ready"
    assert "no licence" in (described["breaks"].error or "")
    assert described["picky"].state == "ready"  # without options nothing can be said


def test_duplicate_interceptor_name_is_refused(tmp_path: Path) -> None:
    entries = {"mask": "Mask", "json-schema": "Mask"}
    with installed(tmp_path / "rivals", ENTRY_POINT_GROUP, CODE, entries, "rivals"):
        with pytest.raises(InterceptorsUnusable, match=r"several packages register .* 'mask'"):
            loading.load_chain(wanted("mask"), None)
        chain = loading.load_chain(wanted("json-schema", **{"json-schema_schema": "{}"}), None)
        assert type(chain.interceptors[0]).__name__ == "JsonSchema"
        errors = [one.error for one in loading.available() if one.name == "json-schema"]
        assert sorted(map(str, errors)) == [
            "None",
            "raylog's own interceptor of that name is used instead",
        ]


# ---- files -----------------------------------------------------------------------------------


def test_files_that_options_name_lie_in_the_brokers_directory(tmp_path: Path) -> None:
    allowed = tmp_path / "schemas"
    allowed.mkdir()
    chain = loading.load_chain(wanted("mask", mask_words_file="a/b.txt"), str(allowed))
    assert chain.interceptors[0].options == {  # type: ignore[attr-defined]  # theirs
        "words.file": str(allowed / "a" / "b.txt")
    }


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/secret", ".."])
def test_files_elsewhere_are_refused(tmp_path: Path, path: str) -> None:
    allowed = tmp_path / "schemas"
    allowed.mkdir()
    (allowed / "link").symlink_to(tmp_path)
    with pytest.raises(InterceptorsUnusable, match=r"is not in raylog\.interceptors\.files\.dir"):
        loading.load_chain(wanted("mask", mask_file=path), str(allowed))


def test_without_a_directory_no_file_may_be_named() -> None:
    with pytest.raises(InterceptorsUnusable, match=r"no raylog\.interceptors\.files\.dir"):
        loading.load_chain(wanted("mask", mask_file="a"), None)


def test_packages_are_read_anew_only_when_some_came_or_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request may name thousands of interceptors, and each look takes 6 ms."""
    looks: list[str] = []
    look = metadata.entry_points

    def looking(group: str) -> Any:
        looks.append(group)
        return look(group=group)

    monkeypatch.setattr(plugins, "entry_points", looking)
    group, code, place = "raylog.interceptors", "class Late: ...", tmp_path / "a"
    with installed_in(place, group, code, {"early": "Late"}, "early"):
        for _ in range(100):
            assert "early" in loading.names()
            loading.require(["early"])
        assert len(looks) == 1
        with installed_in(place, group, code, {"late": "Late"}, "late"):
            assert {"early", "late"} <= set(loading.names())
            assert len(looks) == 2
    assert "early" not in loading.names()


def test_a_thread_imports_what_finds_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    aside: list[str] = []

    class Runtime:
        async def run_blocking(self, function: Any, *args: Any) -> Any:
            aside.append(function.__name__)
            return function(*args)

    runtime: Any = Runtime()
    asyncio.run(have_learned(runtime, ["raylog.interceptors"]))
    assert aside == [], "it is imported already"
    monkeypatch.delitem(sys.modules, "raylog.actors.interceptors.loading")
    asyncio.run(have_learned(runtime, ["retention.ms"]))
    assert aside == []
    asyncio.run(have_learned(runtime, ["raylog.interceptor.mask.fields"]))
    assert aside == ["_learn"]
