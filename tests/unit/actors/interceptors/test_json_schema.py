"""The shipped interceptor that validates JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from raylog.actors.interceptors import json_schema
from raylog.actors.interceptors.api import Record, Rejected
from raylog.actors.interceptors.json_keywords import TooManySteps
from raylog.actors.interceptors.json_schema import JsonSchema
from tests.support.cpu_time import cpu_s

SCHEMA = json.dumps(
    {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "tags": {"items": {"$ref": "#/$defs/tag"}}},
        "$defs": {"tag": {"type": "string"}},
    }
)


def configured(**options: str) -> JsonSchema:
    one = JsonSchema()
    one.configure({name.replace("_", "."): value for name, value in options.items()})
    return one


def record(value: bytes | None, key: bytes | None = None, offset: int = 0) -> Record:
    return Record(offset, 1, key, value)


def reason(one: JsonSchema, value: bytes | None, key: bytes | None = None) -> str | None:
    (answer,) = one.on_produce("t", [record(value, key)])
    return answer.reason if isinstance(answer, Rejected) else None


def test_a_batch_that_fits_passes_as_it_is() -> None:
    records = (record(b'{"id": 1}'), record(b'{"id": 2, "tags": ["a"]}', offset=1))
    assert configured(schema=SCHEMA).on_produce("t", records) is records


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"id": "1"}', "value at $.id: '1' is not of type 'integer'"),
        (b"{}", "value at $: 'id' is a required property"),
        (b'{"id": 1, "tags": [1]}', "value at $.tags[0]: 1 is not of type 'string'"),
        (b"{", "value is not JSON: "),
        (b"\xff\xfe\xfa", "value is not JSON: "),
        (b"", "value is not JSON: "),
        (b'{"id": NaN}', "value is not JSON: NaN is not a JSON value"),
        (b"[" * 100_000, "value is not JSON: "),
    ],
)
def test_invalid_value_is_rejected_with_the_reason(value: bytes, says: str) -> None:
    assert (reason(configured(schema=SCHEMA), value) or "").startswith(says)


def test_only_what_does_not_fit_is_rejected_or_dropped() -> None:
    records = [record(b'{"id": 1}'), record(b"x", offset=1), record(b'{"id": 3}', offset=2)]
    answers = configured(schema=SCHEMA).on_produce("t", records)
    assert [type(one) for one in answers] == [Record, Rejected, Record]
    dropping = configured(schema=SCHEMA, on_invalid="drop")
    assert dropping.on_produce("t", records) == [records[0], records[2]]


def test_a_reason_does_not_quote_a_whole_value() -> None:
    says = reason(configured(schema=SCHEMA), json.dumps({"id": "x" * 10_000}).encode()) or ""
    assert says.endswith("...")
    assert len(says) < 300


def test_keys_have_a_schema_of_their_own() -> None:
    one = configured(key_schema='{"type": "integer"}')
    assert reason(one, b"no json", b"1") is None
    assert (reason(one, b"", b'"1"') or "").startswith("key at $: '1' is not of type")
    both = configured(schema=SCHEMA, key_schema='{"type": "integer"}')
    assert (reason(both, b'{"id": 1}', b"x") or "").startswith("key is not JSON")


def test_tombstones_pass_unless_they_may_not() -> None:
    assert reason(configured(schema=SCHEMA), None) is None
    assert reason(configured(schema=SCHEMA, null="refuse"), None) == "value is null"


def test_a_schema_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(SCHEMA)
    assert reason(configured(schema_file=str(path)), b"{}") is not None


def test_references_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib.request

    def never(*_: object, **__: object) -> None:
        raise AssertionError("went to the network")

    monkeypatch.setattr(urllib.request, "urlopen", never)
    one = configured(schema='{"$ref": "http://127.0.0.1:1/schema.json"}')
    with pytest.raises(Exception, match="Unresolvable"):
        one.on_produce("t", [record(b"{}")])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "a schema is needed"),
        ({"schema": "{"}, "schema is not JSON: "),
        ({"schema": '{"type": "integr"}'}, "schema is not a JSON schema: "),
        ({"schema": "{}", "schema_file": "x"}, "exclude each other"),
        ({"schema": "{}", "on_invalid": "ignore"}, "on.invalid is reject or drop, not 'ignore'"),
        ({"schema": "{}", "null": "maybe"}, "null is accept or refuse"),
        ({"shema": "{}"}, "unknown option 'shema'; there are: schema, "),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        configured(**options)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        configured(schema_file=str(tmp_path / "none.json"))


# ---- patterns --------------------------------------------------------------------------------

SLOW = "^(a+)+$"
"""To Python's own expressions each further character of what does not match doubles the time."""
WORD = "a" * 64 + "!"


@pytest.mark.parametrize(
    ("schema", "document", "says"),
    [
        ({"pattern": SLOW}, WORD, "does not match"),
        ({"patternProperties": {SLOW: {"type": "string"}}}, {WORD: 1}, None),
        (
            {"patternProperties": {SLOW: True}, "additionalProperties": False},
            {WORD: 1},
            "additional properties are not allowed",
        ),
        (
            {"patternProperties": {SLOW: True}, "additionalProperties": {"type": "string"}},
            {WORD: 1},
            "1 is not of type 'string'",
        ),
        ({"propertyNames": {"pattern": SLOW}}, {WORD: 1}, "does not match"),
    ],
)
@pytest.mark.parametrize(
    "draft", ["draft-07/schema#", "draft/2019-09/schema", "draft/2020-12/schema"]
)
def test_patterns_take_linear_time(
    schema: dict[str, object], document: object, says: str | None, draft: str
) -> None:
    http = "http" if draft.startswith("draft-") else "https"
    whole = {"$schema": f"{http}://json-schema.org/{draft}", **schema}
    answer = reason(configured(schema=json.dumps(whole)), json.dumps(document).encode())
    assert says is None if answer is None else says is not None and says in answer


def test_patterns_mean_what_they_meant() -> None:
    one = configured(
        schema=json.dumps(
            {
                "properties": {"id": {"pattern": "^[0-9]+$"}, "word": {"pattern": "b"}},
                "patternProperties": {"^x-": {"type": "integer"}},
                "additionalProperties": False,
            }
        )
    )
    assert reason(one, b'{"id": "12", "word": "abc", "x-a": 1}') is None
    assert "does not match" in (reason(one, b'{"id": "12a"}') or "")
    assert "does not match" in (reason(one, b'{"word": "ac"}') or "")
    assert "is not of type 'integer'" in (reason(one, b'{"x-a": "1"}') or "")
    assert "'y', 'z'" in (reason(one, b'{"z": 1, "y": 2, "id": "1"}') or "")
    assert "does not match" in (reason(one, b'{"id": "\\ud800"}') or ""), "no text, yet JSON"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"pattern": "(?=a)"}, "pattern '(?=a)' is not valid in RE2"),
        ({"items": {"pattern": r"(a)\1"}}, "is not valid in RE2"),
        ({"properties": {"x": {"patternProperties": {"(": True}}}}, "is not valid in RE2"),
        ({"pattern": "((a{100}){100}){100}"}, "is not valid in RE2"),
        (
            {"patternProperties": {"a": True}, "allOf": [{"unevaluatedProperties": False}]},
            "unevaluatedProperties does not go together with patternProperties",
        ),
    ],
)
def test_patterns_that_are_none_are_refused_with_the_schema(
    schema: dict[str, object], says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        configured(schema=json.dumps(schema))


def test_property_named_pattern_is_not_compiled_as_a_pattern() -> None:
    schema = {
        "enum": [{"pattern": "("}],
        "properties": {"pattern": {"type": "string"}, "patternProperties": {"type": "string"}},
    }
    assert reason(configured(schema=json.dumps(schema)), b'{"pattern": "("}') is None


# ---- schemas that take long ------------------------------------------------------------------


def nested(depth: int) -> dict[str, object]:
    """Alternatives within alternatives: twice the work with each further level."""
    levels = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(depth)}
    return {"$ref": "#/$defs/0", "$defs": {**levels, str(depth): {"type": "integer"}}}


def test_a_schema_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "STEPS_MAX", 5_000)
    one = configured(schema=json.dumps(nested(40)))
    for _ in range(2):
        with pytest.raises(TooManySteps):
            one.on_produce("t", [record(b"1")])
    few = configured(schema=json.dumps(nested(5)))
    for _ in range(100):
        assert reason(few, b"1") is None, "each call has as many steps"


@pytest.mark.parametrize(
    ("document", "unique"),
    [
        ([1, True, "1", None, [1], [True], {"a": 1}, {"a": True}, 0, False], True),
        ([1, 1.0], False),
        ([[{"a": [1, 2]}], [{"a": [1.0, 2]}]], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([None, None], False),
        ([True, True], False),
        ([["bool", 1], True, ["bool", True]], True),
        ([], True),
        ({"a": 1}, True),
    ],
)
def test_items_are_unique_as_json_schema_has_it(document: object, unique: bool) -> None:
    schema = {"uniqueItems": True}
    answer = reason(configured(schema=json.dumps(schema)), json.dumps(document).encode())
    assert (answer is None) is unique
    by_library = Draft202012Validator(schema).is_valid(document)
    assert by_library is unique


def test_items_are_compared_in_linear_time() -> None:
    items = [one for n in range(5_000) for one in ({"n": n}, str(n), n)]
    schema, document = configured(schema='{"uniqueItems": true}'), json.dumps(items).encode()
    assert reason(schema, document) is None
    assert cpu_s(lambda: reason(schema, document), 1) < 1
