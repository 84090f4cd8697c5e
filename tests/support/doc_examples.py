"""Examples in documents: fenced blocks, as programs that a test runs and type-checks.

Each ```python block of a page is a program of its own. A comment before a block changes that:

- `<!-- example: continues -->`: the block continues the program of the previous block;
- `<!-- example: not typed -->`: it runs, but mypy does not check it (untyped libraries);
- `<!-- example: not run: REASON -->`: mypy checks it, but it does not run;
- `<!-- example: only read: REASON -->`: neither;
- `<!-- example: run -->` before a ```console block: run its commands (`$ …`) in order;
- `<!-- example: output -->` before a ```text block: the output of the previous program.

The blocks of a page run in order, on one broker that creates topics on first use. In a program,
`localhost:9092` and the predefined variable `bootstrap` stand for that broker; commands use it by
default. `localhost:8081` stands for a schema registry, also in commands. In expected output, a line
`…` matches any lines.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "client").glob("*.md"))]
BROKER = "localhost:9092"
REGISTRY = "localhost:8081"
PREAMBLE = "import os as _os\n\nbootstrap: str = _os.environ['RAYLOG_BOOTSTRAP']\n"
_FENCE = re.compile(r"^( *)```(\w*)")
_COMMENT = re.compile(r"^\s*<!-- example: (.+?) -->\s*$")
_MARKS = ("continues", "not typed", "run", "output")
_MARKS_WITH_REASON = ("not run: ", "only read: ")


@dataclass(slots=True)
class Example:
    """A program or a console session in a page, which begins at `line`."""

    page: Path
    line: int
    language: str
    text: str
    marks: set[str] = field(default_factory=set)
    output: str | None = None

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        page = self.page.stem.lower().replace("-", "_")
        return f"{page}_line_{self.line}"

    @property
    def where(self) -> str:
        """Page and line in the form that editors understand."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether a test runs it."""
        return not self.marks & {"not run", "only read"}

    @property
    def is_typed(self) -> bool:
        """Whether mypy checks it."""
        return self.language == "python" and not self.marks & {"not typed", "only read"}

    def program(self, bootstrap: str = BROKER, registry: str = REGISTRY) -> str:
        """Return the program's text for this broker and schema registry."""
        text = self.text.replace(BROKER, bootstrap).replace(REGISTRY, registry)
        return f"{PREAMBLE}\n{text}"

    def commands(self) -> list[tuple[str, str | None]]:
        """Return a session's commands, each with the output that the page shows after it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found[-1][0].endswith("\\"):
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            else:
                found[-1][1].append(line)
        return [(command, "\n".join(shown) or None) for command, shown in found]


def examples_of(page: Path) -> list[Example]:
    """Return a page's programs and sessions in order; raise ValueError for a misplaced mark."""
    found: list[Example] = []
    for line, language, text, mark in _blocks(page):
        kind = _kind(mark)
        if kind == "output":
            found[-1].output = text
        elif kind == "continues":
            found[-1].text += f"\n{text}"
        elif language == "python" or (language == "console" and kind == "run"):
            found.append(Example(page, line, language, text, {kind} if kind else set()))
        elif mark is not None:
            raise ValueError(f"{page}:{line}: {mark!r} before a block of {language or 'no'} kind")
    return found


def is_like(shown: str, printed: str) -> bool:
    """Return whether the printed output matches the output shown in a page."""
    parts = [re.escape(line.rstrip()) for line in shown.strip().splitlines()]
    pattern = "\n".join(r"[\s\S]*?" if part == re.escape("…") else part for part in parts)
    lines = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def _kind(mark: str | None) -> str | None:
    """Return a mark without its reason; raise ValueError for an unknown mark."""
    if mark is None or mark in _MARKS:
        return mark
    for known in _MARKS_WITH_REASON:
        if mark.startswith(known) and mark.removeprefix(known).strip():
            return known.removesuffix(": ")
    raise ValueError(f"unknown mark {mark!r}: expected one of {(*_MARKS, *_MARKS_WITH_REASON)}")


def _blocks(page: Path) -> list[tuple[int, str, str, str | None]]:
    """Return the fenced blocks: first line, language, text without indent, and the mark before."""
    found = []
    mark: str | None = None
    inside: tuple[int, str, str, list[str]] | None = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is not None and line.strip() == "```":
            start, language, _, lines = inside
            found.append((start, language, "\n".join(lines) + "\n", mark))
            inside, mark = None, None
        elif inside is not None:
            inside[3].append(line.removeprefix(inside[2]))
        elif fence is not None:
            inside = (number + 1, fence[2], fence[1], [])
        elif comment := _COMMENT.match(line):
            mark = comment[1]
        elif line.strip():
            mark = None
    return found
