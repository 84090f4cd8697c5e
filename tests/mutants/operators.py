"""All mistakes that can be made in a file, as replacements of bytes of its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path

COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
}
EXCHANGED = {"min": "max", "max": "min", "any": "all", "all": "any"}
TEXTS = {"__repr__", "__str__", "__format__"}
LOGGERS = {"log", "logger", "logging"}
SEQUENCES = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.ListComp)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Mutant:
    """A mistake that replaces the bytes from `start` to `end` (exclusive) of a file."""

    path: Path
    start: int
    end: int
    replacement: str
    operator: str
    line: int

    def applied(self, source: bytes) -> bytes:
        """The source with the mistake."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """The mistake as a unified diff with one line of context."""
        old, new = (text.decode().splitlines() for text in (source, self.applied(source)))
        return "\n".join(list(unified_diff(old, new, str(self.path), "", "", "", 1, ""))[2:])


@dataclass
class Finder(ast.NodeVisitor):
    """Finds the mistakes that can be made in a file."""

    path: Path
    source: bytes
    found: list[Mutant] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _functions: list[Function] = field(default_factory=list)

    def __post_init__(self) -> None:
        for line in self.source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    # Nodes that are skipped

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions, which guard invariants and decide nothing."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings, which are texts."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value, not the annotation."""
        if node.value is not None:
            self.visit(node.value)

    # Functions and statements

    def visit_FunctionDef(self, node: Function) -> None:
        """Visit the body, without decorators, defaults and docstring."""
        if node.name in TEXTS:
            return
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        self._functions.append(node)
        returns_none = isinstance(node.returns, ast.Constant) and node.returns.value is None
        for place, statement in enumerate(body):
            if place and returns_none and node.name != "__init__":
                self._insert("early return", statement, "return")
            self.visit(statement)
        self._functions.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Visit the function like any other."""
        self.visit_FunctionDef(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drop calls whose result is not used, awaited or not."""
        if isinstance(node.value, ast.Await):
            self._replace("dropped await", node, "pass")
        elif isinstance(node.value, ast.Call) and not _is_logging(node.value):
            self._replace("dropped statement", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Drop the raise. Its text is left alone."""
        self._replace("dropped statement", node, "pass")

    def visit_Assign(self, node: ast.Assign) -> None:
        """Drop assignments to existing targets."""
        kept = (ast.Attribute, ast.Subscript)
        is_first = bool(self._functions) and self._functions[-1].name == "__init__"
        if all(isinstance(target, kept) for target in node.targets) and not is_first:
            self._replace("dropped statement", node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Change `+=`, or drop the whole statement."""
        self._replace("dropped statement", node, "pass")
        self._compute(node.op, node.target, node.value)
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        """Replace by break, or drop it."""
        self._replace("loop", node, "break")
        self._replace("loop", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        """Replace by continue, or drop it."""
        self._replace("loop", node, "continue")
        self._replace("loop", node, "pass")

    def visit_If(self, node: ast.If) -> None:
        """Never take a branch, always take it, or invert it."""
        if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(node.test)):
            self._replace("branch", node.test, "True" if node.orelse else "False")
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Return another value of the declared type."""
        declared = self._functions[-1].returns if self._functions else None
        text = "" if declared is None else ast.unparse(declared)
        if node.value is None:
            return
        if text == "bool":
            self._negate(node.value, "return")
        elif text in {"int", "float"}:
            self._replace("return", node.value, f"({self._text(node.value)}) + 1")
        elif "None" in text.split(" | ") and ast.unparse(node.value) != "None":
            self._replace("return", node.value, "None")
        elif text.startswith(("list[", "Sequence[")) and ast.unparse(node.value) != "[]":
            self._replace("return", node.value, "[]")
        self.generic_visit(node)

    # Expressions

    def visit_Call(self, node: ast.Call) -> None:
        """Change `min` and similar functions, and the ends of ranges."""
        if _is_logging(node):
            return
        if isinstance(node.func, ast.Name):
            if node.func.id in EXCHANGED:
                self._replace("min and max", node.func, EXCHANGED[node.func.id])
            if node.func.id == "range":
                self._off_by_one(node.args)
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        """Make bounds off by one."""
        self._off_by_one([bound for bound in (node.lower, node.upper) if bound is not None])
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Include or exclude the bound, or negate."""
        for (left, right), how in zip(
            pairwise([node.left, *node.comparators]), node.ops, strict=True
        ):
            self._between("comparison", left, right, *COMPARED[type(how)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Change arithmetic."""
        self._compute(node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange `and` and `or`."""
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            self._between("boolean", left, right, *words)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop `not`."""
        if isinstance(node.op, ast.Not):
            self._negate(node)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Take the other value."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Drop a condition."""
        for test in node.ifs:
            self._replace("branch", test, "True")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Negate booleans. Replace a number by the next one, and 1 by 0."""
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("constant", node, str(node.value + 1))
            if node.value == 1:
                self._replace("constant", node, "0")

    # Replacements

    def _compute(self, how: ast.operator, left: ast.expr, right: ast.expr) -> None:
        if type(how) in COMPUTED and not _is_text(left) and not _is_text(right):
            self._between("arithmetic", left, right, *COMPUTED[type(how)])

    def _off_by_one(self, bounds: Sequence[ast.expr]) -> None:
        for bound in bounds:
            self._replace("off by one", bound, f"({self._text(bound)}) + 1")
            self._replace("off by one", bound, f"({self._text(bound)}) - 1")

    def _negate(self, test: ast.expr, operator: str = "negation") -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            text = re.sub(r"^not\b", "", self._text(test)).lstrip()
        else:
            text = f"not ({self._text(test)})"
        self._replace(operator, test, text)

    def _between(self, operator: str, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[start:end].decode()
        self._offer(operator, start, end, gap.replace(old, new, 1))

    def _replace(self, operator: str, node: ast.AST, text: str) -> None:
        self._offer(operator, *self._span(node), text)

    def _insert(self, operator: str, before: ast.stmt, text: str) -> None:
        start = self._span(before)[0]
        self._offer(operator, start, start, f"{text}\n{' ' * before.col_offset}")

    def _offer(self, operator: str, start: int, end: int, text: str) -> None:
        if self._functions:
            line = self.source.count(b"\n", 0, start) + 1
            self.found.append(Mutant(self.path, start, end, text, operator, line))

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset


def mutants_of(path: Path, source: bytes) -> list[Mutant]:
    """All mistakes that can be made in a file, in its order. `path` is the path that they name."""
    finder = Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


def is_another_program(source: bytes, mutant: Mutant) -> bool:
    """Whether the file compiles with the mistake and differs from the original program."""
    try:
        compile(mutant.applied(source), str(mutant.path), "exec")
        return ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def _is_logging(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id.lstrip("_") in LOGGERS


def _is_text(operand: ast.expr) -> bool:
    if isinstance(operand, ast.Constant):
        return isinstance(operand.value, str | bytes)
    return isinstance(operand, SEQUENCES)
