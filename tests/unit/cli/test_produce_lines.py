"""Lines that `raylog produce` reads: an invalid record is refused with its line number."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.produce import Line, LineRefused, parse_json, parse_line, read_lines


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "expected one JSON object per line.* found b'{'"),
        (b"[]", "expected one JSON object per line"),
        (b"[" * 100_000, "expected one JSON object per line"),
        (b"\xff", "expected one JSON object per line"),
        (b'{"value":"a","headers":[1,2]}', r'"headers": expected an object, .* found \[1, 2\]'),
        (b'{"value":"a","headers":[["a"]]}', '"headers": expected an object'),
        (b'{"value":"a","headers":7}', '"headers": expected an object'),
        (b'{"value":"a","headers":{"a":"\\ud800"}}', '"headers": expected text'),
        (
            b'{"value":"a","timestamp":"soon"}',
            '"timestamp": expected a 64-bit integer, found "soon"',
        ),
        (
            b'{"value":"a","timestamp":9223372036854775808}',
            '"timestamp": expected a 64-bit integer',
        ),
        (b'{"value":"a","timestamp":1.5}', '"timestamp": expected a 64-bit integer'),
        (b'{"value":"a","partition":true}', '"partition": expected a 64-bit integer, found true'),
        (b'{"vlaue":"a"}', 'with "value" .null: a tombstone. or "value_base64", found'),
        (b'{"value_base64":"%%%%"}', '"value_base64": .*, found "%%%%"'),
        (b'{"value":"a","key_base64":"a"}', '"key_base64": '),
        (b'{"value":"\\ud800"}', '"value": expected text, .*give other bytes as "value_base64"'),
    ],
)
def test_json_that_is_no_record_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(LineRefused, match=said) as raised:
        parse_json(line)
    assert len(str(raised.value)) < 400


def test_json_that_is_a_record() -> None:
    line = b'{"value":{"a":1},"key_base64":"/w==","headers":{"h":null},"timestamp":5,"partition":1}'
    assert parse_json(line) == Line(b'{"a":1}', b"\xff", [("h", None)], 5, 1)
    assert parse_json(b'{"value":null,"headers":[["a","b"],["a",1]]}') == Line(
        None, None, [("a", b"b"), ("a", b"1")]
    )


def test_a_line_without_its_separator_is_refused() -> None:
    with pytest.raises(LineRefused, match="expected b':' after the key, found b'kv'"):
        parse_line(b"kv", Line(None), b":", null=False)


def test_lines_across_reads(tmp_path: Path) -> None:
    lines = [b"", b"a", b"b" * 700_000, b"", b"c" * 262_144, b"d" * 262_143, b"e"]
    path = tmp_path / "lines"
    path.write_bytes(b"\r\n".join(lines))
    with path.open("rb") as source:
        assert list(read_lines(source, lambda: None)) == lines


def test_a_long_line_takes_time_in_proportion(tmp_path: Path) -> None:
    """It was put together anew with each part: 90 MB took half a minute."""
    path = tmp_path / "line"
    path.write_bytes(b"x" * 64_000_000)
    begun = time.process_time()
    with path.open("rb") as source:
        assert [len(line) for line in read_lines(source, lambda: None)] == [64_000_000]
    assert time.process_time() - begun < 2, "0.1 s is usual; it was 10 s"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--json", "--key", "k"), "with --json, give keys, headers, partitions and null"),
        (("--json", "--header", "a=b"), "with --json"),
        (("--json", "--partition", "0"), "with --json"),
        (("--json", "--null"), "with --json"),
        (("--json", "--key", ""), "with --json"),
        (("--json", "--key-separator", ""), "with --json"),
        (("--key", "k", "--key-separator", ":"), "give --key, or --key-separator"),
        (("--key-separator", ""), "with at least one character"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(app, ["produce", "t", *options], env={"COLUMNS": "200"})
    assert found.exit_code == 2
    assert said in found.output
