"""Generates encoders: `(message, out: bytearray) -> list of chunks, the first of which is out`.

Everything but record data is appended to `out`. Record data goes into the list by reference,
followed by a new bytearray. Values that do not fit raise AttributeError, TypeError, struct.error or
UnicodeEncodeError. The caller turns them into EncodeError.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from raylog.wire.codegen.primitives import (
    PACKERS,
    STRING_BYTES_MAX,
    absent_field,
    bad_uuid,
    long_string,
    put_tag,
    put_uvarint,
)
from raylog.wire.codegen.source import Source
from raylog.wire.schema import RECORDS, STRING, UUID, Array, Buffer, Field, Kind, layout_of

Encoder = Callable[[object, bytearray], list[Buffer]]


def make_encoder(cls: type, version: int, flexible: bool) -> Encoder:
    """The encoder of `cls` at `version`."""
    source = _EncoderSource(version, flexible)
    source.line("chunks = [out]")
    source.write_struct(cls, "o0", 0)
    source.flush()
    source.line("if not out: chunks.pop()")
    source.line("return chunks")
    return cast(Encoder, source.function("o0, out", f"encode {cls.__name__} v{version}"))


class _EncoderSource(Source):
    """Source of an encoder.

    `_out` is the variable of the current buffer: the message's or a tag's.
    """

    _out = "out"

    def flush(self) -> None:
        """Write the gathered fixed-width fields with one call; "x" is a zero byte."""
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        values = ", ".join(value for value, code in self.run if code != "x")
        self.line(f"{self._out} += {self.struct_call(codes, 'pack')}({values})")
        self.run.clear()

    def write_struct(self, cls: type, obj: str, level: int) -> None:
        """Write the struct in variable `obj`. Its last fixed-width fields may stay in `run`."""
        for field in layout_of(cls).fields:
            if self.version not in field.versions and not field.ignorable:
                self._refuse_absent(cls, field, obj)
        for field in self.present(cls):
            path = f"{cls.__name__}.{field.name}"
            nullable = self.version in field.nullable
            self._write(field.kind, f"{obj}.{field.name}", path, level, nullable)
        if self.flexible:
            self._write_tags(cls, obj, level)

    def _refuse_absent(self, cls: type, field: Field, obj: str) -> None:
        refuse = self.constant("absent_field", absent_field)
        value = f"{obj}.{field.name}"
        path = f"{cls.__name__}.{field.name}"
        with self.block(f"if {self._differs(field, value)}:"):
            self.line(f"{refuse}({path!r}, {self.version}, {value})")

    def _differs(self, field: Field, value: str) -> str:
        """An expression that is true if `value` differs from the field's default."""
        default = field.default
        if default is None:
            given = f"{value} is not None"
            if isinstance(field.kind, type) and not field.nullable:
                given = f"({given} and {value} != {self.constant('default', field.kind())})"
            return given
        if default == [] or default == "" or default is False:
            return value if not field.nullable else f"({value} is None or {value})"
        if isinstance(default, int | str | bytes | float):
            return f"{value} != {default!r}"
        return f"{value} != {self.constant('default', default)}"

    def _write(
        self, kind: Kind | Array | type, value: str, path: str, level: int, nullable: bool
    ) -> None:
        if isinstance(kind, Array):
            self._write_array(kind, value, path, level, nullable)
        elif isinstance(kind, type):
            self._write_nested(kind, value, level, "-1" if nullable else None)
        elif kind is UUID:
            self._write_uuid(value, path, level)
        elif kind.code:
            self.run.append((value, kind.code))
        else:
            self._write_sized(kind, value, path, nullable)

    def _write_uuid(self, value: str, path: str, level: int) -> None:
        name = f"u{level}_{len(self.run)}"  # `struct` would pad or cut a wrong length silently
        self.line(f"{name} = {value}")
        bad = self.constant("bad_uuid", bad_uuid)
        self.line(f"if len({name}) != 16: {bad}({path!r}, {name})")
        self.run.append((name, UUID.code))

    def _write_length(self, code: str) -> None:
        """Write `n`, a length or count, together with the gathered fields."""
        if not self.flexible:
            self.run.append(("n", code))
            self.flush()
            return
        gathered = list(self.run)
        with self.block("if n < 127:"):
            self.run.append(("n + 1", "B"))
            self.flush()
        self.run = gathered
        with self.block("else:"):
            self.flush()
            self.line(f"{self.constant('put_uvarint', put_uvarint)}({self._out}, n + 1)")

    @contextmanager
    def _unless_null(self, nullable: bool, null: tuple[str, str]) -> Iterator[None]:
        """Write `null` if `v` is None, else what the body writes.

        Both include the gathered fields.
        """
        if not nullable:
            yield
            self.flush()
            return
        gathered = list(self.run)
        with self.block("if v is None:"):
            self.run.append(null)
            self.flush()
        self.run = gathered
        with self.block("else:"):
            yield
            self.flush()

    def _null(self, code: str) -> tuple[str, str]:
        return ("", "x") if self.flexible else ("-1", code)

    def _write_sized(self, kind: Kind, value: str, path: str, nullable: bool) -> None:
        code = "h" if kind is STRING else "i"
        self.line(f"v = {value}")
        with self._unless_null(nullable, self._null(code)):
            if kind is RECORDS:
                self._write_records()
                return
            if kind is STRING:
                self.line("v = v.encode()")
            self.line("n = len(v)")
            if kind is STRING:
                too_long = self.constant("long_string", long_string)
                self.line(f"if n > {STRING_BYTES_MAX}: {too_long}({path!r}, n)")
            self._write_length(code)
            self.line(f"{self._out} += v")

    def _write_records(self) -> None:
        """Write the length of record data and pass the data by reference."""
        assert self._out == "out", "record data in a tagged field"
        self.line("parts = v if isinstance(v, (list, tuple)) else (v,)")
        self.line("n = sum(map(len, parts))")
        self._write_length("i")
        with self.block("if n:"):
            self.line("out = bytearray()")
            self.line("chunks += parts")
            self.line("chunks.append(out)")

    def _write_nested(self, cls: type, value: str, level: int, null: str | None) -> None:
        """Write a struct. `null` is the leading byte that means None; 1 means a value."""
        obj = f"o{level + 1}"
        if null is None:
            self.flush()
            self.line(f"{obj} = {value}")
            self.write_struct(cls, obj, level + 1)
            return
        self.line(f"v = {value}")
        with self._unless_null(True, (null, "b")):
            self.run.append(("1", "b"))
            self.flush()
            self.line(f"{obj} = v")
            self.write_struct(cls, obj, level + 1)

    def _write_array(self, kind: Array, value: str, path: str, level: int, nullable: bool) -> None:
        self.line(f"v = {value}")
        with self._unless_null(nullable, self._null("i")):
            self.line("n = len(v)")
            self._write_length("i")
            self._write_elements(kind.element, path, level)

    def _write_elements(self, element: Kind | type, path: str, level: int) -> None:
        if isinstance(element, Kind) and element.code in PACKERS:
            self.line(f"{self._out} += {self.constant('ints', PACKERS[element.code])}(v)")
            return
        item = f"o{level + 1}" if isinstance(element, type) else "e"
        with self.block(f"for {item} in v:"):
            if isinstance(element, type):
                self.write_struct(element, item, level + 1)
            else:
                self._write(element, item, path, level, nullable=False)
            self.flush()

    def _write_tags(self, cls: type, obj: str, level: int) -> None:
        known = self.tagged(cls)
        if not known:
            self.run.append(("", "x"))
            return
        gathered = list(self.run)
        with self.block(f"if {' or '.join(self._differs(f, f'{obj}.{f.name}') for f in known)}:"):
            self._write_known_tags(cls, known, obj, level)
        self.run = gathered
        with self.block("else:"):
            self.run.append(("", "x"))
            self.flush()

    def _write_known_tags(self, cls: type, known: list[Field], obj: str, level: int) -> None:
        self.flush()
        outer, part, tags, count = self._out, f"part{level}", f"tags{level}", f"count{level}"
        self.line(f"{count} = 0")
        self.line(f"{tags} = bytearray()")
        for field in known:
            value = f"{obj}.{field.name}"
            with self.block(f"if {self._differs(field, value)}:"):
                self.line(f"{count} += 1")
                self.line(f"{part} = bytearray()")
                self._out = part
                path = f"{cls.__name__}.{field.name}"
                nullable = self.version in field.nullable
                if isinstance(field.kind, type) and nullable:  # a varint here: 0 means None, not -1
                    self._write_nested(field.kind, value, level, "0")
                else:
                    self._write(field.kind, value, path, level, nullable)
                self.flush()
                self._out = outer
                self.line(f"{self.constant('put_tag', put_tag)}({tags}, {field.tag}, {part})")
        self.line(f"{outer}.append({count})")
        self.line(f"{outer} += {tags}")
