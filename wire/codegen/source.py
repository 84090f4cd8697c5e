"""Lines of generated Python code and the names that they use."""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

from raylog.wire.schema import Array, Field, Kind, is_struct, layout_of


class Source:
    """The source of a function for one message class at one version.

    Neighbouring fixed-width fields gather in `run` and become one `struct` call. Anything else that
    reads or moves the position calls `flush` first.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # (expression or target, struct code)
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, object] = {}

    def line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add `head` and indent the lines that follow."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def constant(self, hint: str, value: object) -> str:
        """A global name for `value`. The same object always has the same name."""
        for name, known in self._names.items():
            if known is value:
                return name
        name = f"{hint}_{len(self._names)}"
        self._names[name] = value
        return name

    def struct_call(self, codes: str, method: str) -> str:
        """A global name for a method of the Struct of `codes`."""
        name = f"{method}_{codes.replace('?', 'o')}"
        if name not in self._names:
            self._names[name] = getattr(Struct(">" + codes), method)
        return name

    def function(self, signature: str, title: str) -> object:
        """Compile the lines to a function. `title` appears in tracebacks."""
        text = "\n".join([f"def codec({signature}):", *self._lines])
        exec(compile(text, f"<{title}>", "exec"), self._names)  # noqa: S102  # our own schema's text
        return self._names["codec"]

    def present(self, cls: type) -> list[Field]:
        """The untagged fields of `cls` in this version, in wire order."""
        return [f for f in layout_of(cls).fields if self.version in f.versions and f.tag is None]

    def tagged(self, cls: type) -> list[Field]:
        """The tagged fields of `cls` in this version, by ascending tag."""
        fields = layout_of(cls).fields
        known = [f for f in fields if self.version in f.versions and f.tag is not None]
        return sorted(known, key=lambda f: f.tag or 0)

    def size_min(self, kind: Kind | Array | type) -> int:
        """The least bytes that any value of `kind` takes. It bounds counts before allocation."""
        if is_struct(kind):
            assert isinstance(kind, type)
            tags = 1 if self.flexible else 0
            return tags + sum(map(self._field_size_min, self.present(kind)))
        if isinstance(kind, Kind) and kind.code:
            return Struct(">" + kind.code).size
        if self.flexible:
            return 1
        return 2 if isinstance(kind, Kind) and kind.name == "string" else 4

    def _field_size_min(self, field: Field) -> int:
        if is_struct(field.kind) and self.version in field.nullable:
            return 1  # null is one byte
        return self.size_min(field.kind)
