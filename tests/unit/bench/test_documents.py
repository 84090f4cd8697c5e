"""docs/BENCHMARKS.md names existing commands in every section."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "BENCHMARKS.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
_COMMAND = re.compile(r"`(make|python -m) ([a-z_.-]+)([^`]*)`")
COMMANDS = sorted(set(_COMMAND.findall(TEXT)))
SECTIONS = re.split(r"^##+ ", TEXT, flags=re.MULTILINE)[1:]
MARKS = re.findall(r"<!-- (begin|end): written by python -m ([a-z.]+) -->", TEXT)


def _source(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None, f"there is no {module}"
    assert found.origin is not None
    text = Path(found.origin).read_text()
    if found.submodule_search_locations is not None:
        text = (Path(found.origin).parent / "__main__.py").read_text()
    return text + (ROOT / "bench" / "options.py").read_text()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_is_there_with_its_options(command: tuple[str, str, str]) -> None:
    program, target, arguments = command
    if program == "make":
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
        for name in re.findall(r"([A-Z_]+)=", arguments):
            assert f"$({name})" in MAKEFILE or f"$(or $({name})," in MAKEFILE
        return
    source = _source(target)
    for option in re.findall(r"--([a-z-]+)", arguments):
        assert f"--{option}" in source or f"{option.replace('-', '_')}:" in source, option


@pytest.mark.parametrize("section", SECTIONS, ids=lambda text: text.partition("\n")[0])
def test_every_section_says_where_its_figures_come_from(section: str) -> None:
    assert _COMMAND.search(section) or "<!-- begin" in section


def test_marks_are_in_pairs_and_hold_no_section() -> None:
    """What a command writes takes the place of all between its marks."""
    assert MARKS[::2] == [("begin", module) for _, module in MARKS[1::2]]
    for _, module in MARKS[::2]:
        _, _, rest = TEXT.partition(f"<!-- begin: written by python -m {module} -->")
        held, _, _ = rest.partition(f"<!-- end: written by python -m {module} -->")
        assert not re.search(r"^#", held, re.MULTILINE), f"{module} would replace other sections"
