"""The section of the document that a run replaces."""

from pathlib import Path

import pytest

from bench import report

BEGIN, END = (f"<!-- {word}: written by python -m bench -->" for word in ("begin", "end"))


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "docs" / "BENCHMARKS.md"
    monkeypatch.setattr(report, "DOCUMENT", path)
    return path


def test_a_document_is_begun(document: Path) -> None:
    report.write_section("one")
    assert document.read_text() == f"# Benchmarks\n\n{BEGIN}\none\n{END}\n"


def test_only_the_section_is_replaced(document: Path) -> None:
    document.parent.mkdir()
    document.write_text("# Mine\n\nbefore\n")
    report.write_section("one\n")
    document.write_text(document.read_text() + "after\n")
    report.write_section("two")
    assert document.read_text() == (f"# Mine\n\nbefore\n\n{BEGIN}\ntwo\n{END}\nafter\n")


def test_each_module_has_a_section_of_its_own(document: Path) -> None:
    for text in ("one", "two"):
        report.write_section(text)
        report.write_section(text * 2, "bench.other")
    begin, end = BEGIN.replace("bench", "bench.other"), END.replace("bench", "bench.other")
    assert document.read_text() == (
        f"# Benchmarks\n\n{BEGIN}\ntwo\n{END}\n\n{begin}\ntwotwo\n{end}\n"
    )


def test_circumstances_name_machine_commit_and_date() -> None:
    said = report.circumstances()
    assert "cores" in said
    assert "commit" in said
    assert "UTC" in said
