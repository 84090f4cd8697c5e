"""What the mutation tool changes, what it leaves alone, and what a seed draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.drawing import AREAS, ROOT, drawn, source_of
from tests.mutants.operators import is_another_program, mutants_of

PATH = Path("example.py")


def mutated(*lines: str, declared: str = "object") -> set[str]:
    """Bodies of a function with each mistake that can be made there."""
    head = f"def example(a, b, log) -> {declared}:\n"
    source = (head + "".join(f"    {line}\n" for line in lines)).encode()
    found = (mutant.applied(source).decode() for mutant in mutants_of(PATH, source))
    return {
        "\n".join(line.strip() for line in text.removeprefix(head).splitlines()) for text in found
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", {"return a <= b"}),
        ("return (a) is not (b)", {"return (a) is (b)"}),
        ("return a + b * 2", {"return a - b * 2", "return a + b // 2", "return a + b * 3"}),
        ("return a and b", {"return a or b"}),
        ("return a if b else 5", {"return a if not (b) else 5", "return a if b else 6"}),
        ("return 1", {"return 2", "return 0"}),
        ("return not (a)", {"return (a)"}),
        ("return min(a, True)", {"return max(a, True)", "return min(a, False)"}),
        ("return a[b:]", {"return a[(b) + 1:]", "return a[(b) - 1:]"}),
        ("return [x for x in a if x]", {"return [x for x in a if True]"}),
        ("a.b()", {"pass"}),
        ("a.b = b", {"pass"}),
        ("a += b", {"pass", "a -= b"}),
        ("raise ValueError(a + b)", {"pass"}),
        ("return 'texts' + f'{a + b}'", set()),
        ("log.info('%s', a + b)", set()),
        ("assert a < b", set()),
        ("c: int = a", set()),
    ],
)  # fmt: skip
def test_a_statement_has_these_mistakes(line: str, expected: set[str]) -> None:
    assert mutated(line) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("bool", {"return not (a)"}),
        ("int", {"return (a) + 1"}),
        ("str | None", {"return None"}),
        ("list[int]", {"return []"}),
        ("str", set()),
    ],
)
def test_return_mutants_have_the_declared_type(declared: str, expected: set[str]) -> None:
    assert mutated("return a", declared=declared) == expected


def test_branches_loops_and_early_returns() -> None:
    body = ("for x in a:", "  if x:", "    continue", "  b(x)", "b(a)")
    expected = {
        "for x in a:\nif False:\ncontinue\nb(x)\nb(a)",
        "for x in a:\nif not (x):\ncontinue\nb(x)\nb(a)",
        "for x in a:\nif x:\nbreak\nb(x)\nb(a)",
        "for x in a:\nif x:\npass\nb(x)\nb(a)",
        "for x in a:\nif x:\ncontinue\npass\nb(a)",
        "for x in a:\nif x:\ncontinue\nb(x)\npass",
        "for x in a:\nif x:\ncontinue\nb(x)\nreturn\nb(a)",
    }
    assert mutated(*body, declared="None") == expected


def test_module_level_code_and_repr_are_not_mutated() -> None:
    source = b"A = 1\nclass C:\n    b = 2 + 3\n    def __repr__(self): return 1 + 2\n"
    assert mutants_of(PATH, source) == []


def small_tree(root: Path) -> Path:
    """One file for each area, with mistakes of several kinds."""
    for area, (place, *_) in AREAS.items():
        (root / place).mkdir(parents=True)
        lines = (f"    x{number} = a + {number}\n" for number in range(len(area)))
        source = f"def example(a, b) -> bool:\n{''.join(lines)}    return a < b\n"
        (root / place / "example.py").write_text(source)
    return root


def test_a_seed_draws_the_same_list_with_equal_shares_of_the_areas(tmp_path: Path) -> None:
    root = small_tree(tmp_path)
    found = drawn(5, 10, root)
    assert found == drawn(5, 15, root)[:10]
    assert [area for area, _ in found] == 2 * list(AREAS)
    assert len({(mutant.path, mutant.line) for _, mutant in found}) == 10
    assert all(is_another_program(source_of(mutant, root), mutant) for _, mutant in found)
    assert found != drawn(6, 10, root)


def test_every_area_has_files() -> None:
    assert all((ROOT / place).is_dir() for places in AREAS.values() for place in places)


def test_a_mistake_that_does_not_compile_is_none() -> None:
    source = b"def example():\n    if a:\n        return 1\n"
    whole = mutants_of(PATH, source)[0]
    assert is_another_program(source, whole)
    broken = type(whole)(PATH, 0, 3, "", "broken", 1)
    assert not is_another_program(source, broken)
