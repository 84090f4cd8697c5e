"""The files named in the site's settings and in the documents' links exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "examples" not in page.parts)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _settings() -> dict[str, object]:
    with (ROOT / "mkdocs.yml").open() as file:
        found = yaml.safe_load(file)
    assert isinstance(found, dict)
    return found


def _pages(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    assert isinstance(entry, dict | list)
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for one in inner for page in _pages(one)]


def test_the_navigation_names_pages_that_exist() -> None:
    named = _pages(_settings()["nav"])
    assert len(set(named)) == len(named)
    assert set(named) <= {str(page.relative_to(DOCS)) for page in PAGES}


def test_the_site_fetches_no_fonts() -> None:
    theme = _settings()["theme"]
    assert isinstance(theme, dict)
    assert theme["font"] is False


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_names_of_the_api_pages_are_public() -> None:
    for page in (DOCS / "api").glob("*.md"):
        for module, name in re.findall(r"^::: (raylog\.\w+)\.(\w+)$", page.read_text(), re.M):
            home = import_module(module)
            assert name in home.__all__
            assert getattr(home, name) is not None
