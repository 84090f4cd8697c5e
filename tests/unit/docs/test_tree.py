"""Documents name files that exist, and modules of the product are short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = ("actors", "wire", "storage", "assignors", "raydp_jobs", "loadtest", "raylog", "bench")
FOLDERS = (*PRODUCT, "tests", "docs", "deploy", "examples")
FILES = [
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.is_file() and not any(each.is_symlink() for each in path.parents)
] + [path.relative_to(ROOT) for path in ROOT.iterdir() if path.is_file()]
NAMED = re.compile(r"`([\w/.,{}-]+\.(?:py|md|toml))(?:::[^`]*)?`")
PLACEHOLDER = re.compile(r"\b(NAME|AREA|ROLE)\b")
LINES_MAX = 600
LISTS = {Path("wire/errors.py")}
"""Modules that only list things."""


def alternatives(name: str) -> list[str]:
    """`a/{b,c}.py` names two files."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return [found[1] + one + found[3] for one in found[2].split(",")] if found else [name]


@pytest.mark.parametrize("page", [path for path in FILES if path.suffix == ".md"], ids=str)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = (ROOT / page).read_text()
    # The list of mutations says where modules were when it was fixed.
    text = re.sub(r"^## Mutation tests$.*?^## ", "## ", text, flags=re.MULTILINE | re.DOTALL)
    names = {one for name in NAMED.findall(text) for one in alternatives(name)}
    assert [
        name
        for name in sorted(names)
        if not PLACEHOLDER.search(name)
        and not any(str(path).endswith(f"/{name}") or str(path) == name for path in FILES)
    ] == []


def test_modules_of_the_product_are_short() -> None:
    lines = {
        path: (ROOT / path).read_text().count("\n")
        for path in FILES
        if path.suffix == ".py" and path.parts[0] in PRODUCT and path not in LISTS
    }
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}
