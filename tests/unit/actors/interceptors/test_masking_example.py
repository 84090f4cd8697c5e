"""The example package: what it registers, and what it masks."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from raylog.actors.interceptors.api import ENTRY_POINT_GROUP, Record

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "masking-interceptor"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("masking_example", EXAMPLE / "raylog_masking.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def mask_of(module: ModuleType, **options: str) -> Any:
    one = module.Mask()
    one.configure({name.replace("_", "."): value for name, value in options.items()})
    return one


def record(document: object) -> Record:
    return Record(0, 1, b"k", json.dumps(document).encode())


def test_example_registers_its_entry_points(module: ModuleType) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    entries = project["project"]["entry-points"][ENTRY_POINT_GROUP]
    assert entries == {module.Mask.name: f"raylog_masking:{module.Mask.__name__}"}
    assert project["tool"]["setuptools"]["py-modules"] == ["raylog_masking"]


def test_fields_are_masked_at_any_depth(module: ModuleType) -> None:
    one = mask_of(module, fields="card, iban", **{"with": "?"})
    (masked,) = one.on_fetch("t", [record({"a": [{"card": 1}, {"b": {"iban": "x", "c": 2}}]})])
    assert json.loads(masked.value) == {"a": [{"card": "?"}, {"b": {"iban": "?", "c": 2}}]}


def test_record_without_masked_fields_is_unchanged(module: ModuleType) -> None:
    one = mask_of(module, fields="card")
    records = [record({"a": 1}), Record(1, 1, None, None)]
    assert all(a is b for a, b in zip(one.on_fetch("t", records), records, strict=True))


def test_value_that_is_not_json_is_masked(module: ModuleType) -> None:
    (masked,) = mask_of(module, fields="card").on_fetch("t", [Record(0, 1, None, b"card=4")])
    assert masked.value == b"***"


@pytest.mark.parametrize("at_rest", ["true", "false"])
def test_example_masks_on_produce_or_on_fetch(module: ModuleType, at_rest: str) -> None:
    one = mask_of(module, fields="card", at_rest=at_rest)
    records = [record({"card": 1})]
    stored, read = one.on_produce("t", records), one.on_fetch("t", records)
    assert (stored is records, read is records) == (at_rest == "false", at_rest == "true")


def test_without_fields_it_refuses_to_work(module: ModuleType) -> None:
    with pytest.raises(ValueError, match="which fields"):
        mask_of(module, fields=" , ")
