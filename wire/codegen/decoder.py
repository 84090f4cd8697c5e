"""Generates decoders: `(buf, pos, left) -> (message, position after it, elements left)`.

Reads past the end raise IndexError or struct.error, and bad text UnicodeDecodeError. The caller
turns them into DecodeError. Slices never raise, so every length is checked against the end first,
and every count against the minimal size of its elements. All arrays and unknown tagged fields
together may have at most `left` elements. Beyond that TooManyElements is raised before any object
of the current array is created.
"""

from collections.abc import Callable
from struct import Struct
from typing import cast

from raylog.wire.codegen.primitives import (
    STRING_BYTES_MAX,
    UNPACKERS,
    bad_length,
    read_tag,
    read_uvarint,
    skip_tags,
    too_many,
)
from raylog.wire.codegen.source import Source
from raylog.wire.schema import STRING, Array, Field, Kind, layout_of

_TEXT = {"string": 'str(buf[pos:stop], "utf-8")', "bytes": "bytes(buf[pos:stop])"}
Decoder = Callable[[memoryview, int, int], tuple[object, int, int]]


def make_decoder(cls: type, version: int, flexible: bool) -> Decoder:
    """The decoder of `cls` at `version`."""
    source = _DecoderSource(version, flexible)
    source.line("end = len(buf)")
    source.read_struct(cls, 0)
    source.line("return o0, pos, left")
    return cast(Decoder, source.function("buf, pos, left", f"decode {cls.__name__} v{version}"))


class _DecoderSource(Source):
    def flush(self) -> None:
        """Read the gathered fixed-width fields with one call."""
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        targets = ", ".join(target for target, _ in self.run)
        if codes == "B":
            self.line(f"{targets} = buf[pos]")
        else:
            self.line(f"{targets}, = {self.struct_call(codes, 'unpack_from')}(buf, pos)")
        self.line(f"pos += {Struct('>' + codes).size}")
        self.run.clear()

    def read_struct(self, cls: type, level: int) -> None:
        """Read a struct into the variable `o<level>`."""
        self.flush()
        obj = f"o{level}"
        new, name = self.constant("new", object.__new__), self.constant("cls", cls)
        self.line(f"{obj} = {new}({name})")
        for field in layout_of(cls).fields:
            if self.version not in field.versions or field.tag is not None:
                self.line(f"{obj}.{field.name} = {self._default(field)}")
        for field in self.present(cls):
            path = f"{cls.__name__}.{field.name}"
            nullable = self.version in field.nullable
            self._read(field.kind, f"{obj}.{field.name}", path, level, nullable)
        if self.flexible:
            self.run.append(("count", "B"))
        self.flush()
        if self.flexible:
            self._read_tags(cls, level)

    def _default(self, field: Field) -> str:
        if isinstance(field.default, list):
            return "[]"
        if isinstance(field.default, int | float | str | bytes | None):
            return repr(field.default)
        assert isinstance(field.kind, type), f"{field.name}: no way to write its default"
        return f"{self.constant('cls', field.kind)}()"

    def _read(
        self, kind: Kind | Array | type, target: str, path: str, level: int, nullable: bool
    ) -> None:
        if isinstance(kind, Array):
            self._read_array(kind, target, path, level, nullable)
        elif isinstance(kind, type):
            self._read_nested(kind, target, level, "n < 0" if nullable else None)
        elif kind.code:
            self.run.append((target, kind.code))
        else:
            self._read_sized(kind, target, path, nullable)

    def _read_length(self, code: str) -> int:
        """Read a length or count into `n`. Returns by how much `n` exceeds the true value."""
        self.run.append(("n", "B" if self.flexible else code))
        self.flush()
        if not self.flexible:
            return 0
        self.line(
            f"if n > 127: n, pos = {self.constant('read_uvarint', read_uvarint)}(buf, pos, n)"
        )
        return 1

    def _read_sized(self, kind: Kind, target: str, path: str, nullable: bool) -> None:
        excess = self._read_length("h" if kind is STRING else "i")
        head = "if"
        if nullable:
            self.line(f"if n == {excess - 1}: {target} = None")
            head = "elif"
        fail = f"{self.constant('bad_length', bad_length)}({path!r}, n - {excess}, end - pos)"
        upper = f" <= {STRING_BYTES_MAX + excess}" if kind is STRING else ""
        with self.block(f"{head} {excess} <= n{upper} and (stop := pos + n - {excess}) <= end:"):
            self.line(f"{target} = {_TEXT.get(kind.name, 'buf[pos:stop]')}")
            self.line("pos = stop")
        self.line(f"else: {fail}")

    def _read_nested(self, cls: type, target: str, level: int, null: str | None) -> None:
        """Read a struct. `null` is the value of the leading byte `n` that means None."""
        if null is None:
            self.read_struct(cls, level + 1)
            self.line(f"{target} = o{level + 1}")
            return
        self.run.append(("n", "b"))
        self.flush()
        self.line(f"if {null}: {target} = None")
        with self.block("else:"):
            self.read_struct(cls, level + 1)
            self.line(f"{target} = o{level + 1}")

    def _read_array(self, kind: Array, target: str, path: str, level: int, nullable: bool) -> None:
        excess = self._read_length("i")
        if excess:
            self.line("n -= 1")
        size = self.size_min(kind.element)
        assert size > 0, f"{path}: elements without bytes cannot be bounded"
        fail = f"{self.constant('bad_length', bad_length)}({path!r}, n, end - pos)"
        if nullable:
            self.line(f"if n == -1: {target} = None")
        with self.block(f"{'elif' if nullable else 'if'} 0 <= n <= (end - pos) // {size}:"):
            self.line(f"if n > left: {self.constant('too_many', too_many)}({path!r}, n)")
            self.line("left -= n")
            self._read_elements(kind.element, target, path, level)
        self.line(f"else: {fail}")

    def _read_elements(self, element: Kind | type, target: str, path: str, level: int) -> None:
        if isinstance(element, Kind) and element.code in UNPACKERS:
            unpack = self.constant("ints", UNPACKERS[element.code])
            self.line(f"{target} = {unpack}(buf, pos, n)")
            self.line(f"pos += n * {self.size_min(element)}")
            return
        items = f"a{level}"
        self.line(f"{items} = {target} = []")
        with self.block("for _ in range(n):"):
            if isinstance(element, type):
                self.read_struct(element, level + 1)
                self.line(f"{items}.append(o{level + 1})")
            else:
                self._read(element, "e", path, level, nullable=False)
                self.flush()
                self.line(f"{items}.append(e)")

    def _read_tags(self, cls: type, level: int) -> None:
        """Read the tagged fields whose count is in `count`. Unknown ones are skipped."""
        known = self.tagged(cls)
        if not known:
            skip = self.constant("skip", skip_tags)
            self.line(f"if count: pos, left = {skip}(buf, pos, count, left)")
            return
        last = f"last{level}"
        with self.block("if count:"):
            uvarint = self.constant("read_uvarint", read_uvarint)
            self.line(f"if count > 127: count, pos = {uvarint}(buf, pos, count)")
            fail = self.constant("bad_length", bad_length)
            path = f"{cls.__name__} tags"
            self.line(f"if count > (end - pos) >> 1: {fail}({path!r}, count, end - pos)")
            self.line(f"if count > left: {self.constant('too_many', too_many)}({path!r}, count)")
            self.line("left -= count")
            with self.block("for _ in range(count):"):
                tag = self.constant("read_tag", read_tag)
                self.line(f"tag, pos, {last} = {tag}(buf, pos)")
                self.line(f"if {last} > end: {fail}({path!r}, {last} - pos, end - pos)")
                for position, field in enumerate(known):
                    with self.block(f"{'elif' if position else 'if'} tag == {field.tag}:"):
                        self._read_tag_value(cls, field, level)
                self.line(f"else: pos = {last}")
                self.line(f"if pos != {last}: {fail}({path!r}, {last} - pos, end - pos)")

    def _read_tag_value(self, cls: type, field: Field, level: int) -> None:
        nullable = self.version in field.nullable
        path = f"{cls.__name__}.{field.name}"
        if isinstance(field.kind, type) and nullable:  # here Kafka has a varint: 0 is None, not -1
            self._read_nested(field.kind, f"o{level}.{field.name}", level, "n <= 0")
        else:
            self._read(field.kind, f"o{level}.{field.name}", path, level, nullable)
        self.flush()
