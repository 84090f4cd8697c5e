"""The section of the document that a run replaces."""

from pathlib import Path

import pytest

from bench import report


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "docs" / "BENCHMARKS.md"
    monkeypatch.setattr(report, "DOCUMENT", path)
    return path


def test_a_document_is_begun(document: Path) -> None:
    report.write_section("one")
    assert document.read_text() == f"# Benchmarks\n\n{report.BEGIN}\none\n{report.END}\n"


def test_only_the_section_is_replaced(document: Path) -> None:
    document.parent.mkdir()
    document.write_text("# Mine\n\nbefore\n")
    report.write_section("one\n")
    document.write_text(document.read_text() + "after\n")
    report.write_section("two")
    assert document.read_text() == (
        f"# Mine\n\nbefore\n\n{report.BEGIN}\ntwo\n{report.END}\nafter\n"
    )


def test_circumstances_name_machine_commit_and_date() -> None:
    said = report.circumstances()
    assert "cores" in said
    assert "commit" in said
    assert "UTC" in said
