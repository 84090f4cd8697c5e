"""The registry in this process answers like franz-go's srfake, in status, code and content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support import srfake_peer
from tests.worlds.servers import registry as fake_registry

INT = {"schema": '{"type":"int"}'}
SPACED = {"schema": '{ "type" : "int" }', "schemaType": "AVRO", "references": []}
USER = {"schema": '{"type":"record","name":"User","fields":[]}', "schemaType": "AVRO"}
OBJECT = {"schema": '{"type":"object"}', "schemaType": "JSON"}
TEXT = {"schema": 'syntax = "proto3"; message M {}', "schemaType": "PROTOBUF"}
DESCRIPTOR = {"schema": "CgdtLnByb3RvIgMKAU0=", "schemaType": "PROTOBUF"}


def referring(subject: str, version: int) -> dict[str, object]:
    reference = {"name": "User", "subject": subject, "version": version}
    return {"schema": '{"type":"array","items":"User"}', "references": [reference]}


class Said(NamedTuple):
    """An answer without what each registry makes up: GUIDs and messages."""

    status: int
    content: object


ASKED: list[tuple[str, str, object]] = [
    ("GET", "/subjects", None),
    ("GET", "/subjects/int/versions", None),
    ("GET", "/subjects/int/versions/latest", None),
    ("GET", "/schemas/ids/1", None),
    ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", None),
    ("POST", "/subjects/int", INT),
    ("POST", "/subjects/int/versions?normalize=false", INT),
    ("POST", "/subjects/int/versions?normalize=true", SPACED),
    ("POST", "/subjects/other/versions", SPACED),
    ("POST", "/subjects/int/versions", USER),
    ("GET", "/subjects/int/versions", None),
    ("GET", "/subjects/int/versions/1", None),
    ("GET", "/subjects/int/versions/1?deleted=true", None),
    ("GET", "/subjects/int/versions/latest", None),
    ("GET", "/subjects/int/versions/7", None),
    ("POST", "/subjects/int?normalize=false&deleted=false", INT),
    ("POST", "/subjects/int", SPACED),
    ("POST", "/subjects/int", OBJECT),
    ("POST", "/subjects/none", INT),
    ("GET", "/schemas/ids/1", None),
    ("GET", "/schemas/ids/1?subject=other", None),
    ("GET", "/schemas/ids/2?subject=other", None),
    ("GET", "/schemas/ids/99", None),
    ("POST", "/subjects/json/versions", OBJECT),
    ("GET", "/subjects/json/versions/1", None),
    ("GET", "/schemas/ids/3", None),
    ("POST", "/subjects/proto/versions", TEXT),
    ("POST", "/subjects/proto/versions", DESCRIPTOR),
    ("GET", "/subjects/proto/versions/latest?format=serialized", None),
    ("POST", "/subjects/list/versions", referring("int", 2)),
    ("GET", "/subjects/list/versions/1", None),
    ("POST", "/subjects/list", referring("int", 2)),
    ("POST", "/subjects/list/versions", referring("int", 9)),
    ("POST", "/subjects/list/versions", referring("nobody", 1)),
    ("POST", "/subjects/bad/versions", {"schema": "{"}),
    ("POST", "/subjects/bad/versions", {"schema": ""}),
    ("POST", "/subjects/a%2Fb%20c/versions", INT),
    ("GET", "/subjects", None),
    ("DELETE", "/subjects/other", None),
    ("DELETE", "/subjects/nobody", None),
]


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    try:
        srfake_peer.program()
    except srfake_peer.MissingGoError as missing:
        pytest.skip(str(missing))
    with fake_registry.running() as fake, srfake_peer.running() as peer:
        yield fake.url, peer.url


def ask(url: str, method: str, where: str, body: object) -> Said:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(f"{url}{where}", data, method=method), timeout=30) as answer:
            return Said(answer.status, plain(json.loads(answer.read())))
    except HTTPError as refused:
        with refused:
            return Said(refused.code, plain(json.loads(refused.read())))


def plain(answer: object) -> object:
    if not isinstance(answer, dict):
        return answer
    if "error_code" in answer:
        return answer["error_code"]
    return {
        name: "a guid" if name == "guid" else value
        for name, value in answer.items()
        if (name, value) != ("schemaType", "AVRO")
    }


def test_fake_and_real_registry_give_the_same_answers(urls: tuple[str, str]) -> None:
    """In order: what is asked later rests on what was registered before."""
    for asked in ASKED:
        assert ask(urls[0], *asked) == ask(urls[1], *asked), asked


@pytest.mark.parametrize("given", [None, "Basic d3Jvbmc6"])
def test_credentials_that_are_missing_or_wrong(given: str | None) -> None:
    try:
        srfake_peer.program()
    except srfake_peer.MissingGoError as missing:
        pytest.skip(str(missing))
    right = "Basic bWU6cHc="
    with fake_registry.running(right) as fake, srfake_peer.running(right) as peer:
        said = []
        for url in (fake.url, peer.url):
            headers = {} if given is None else {"Authorization": given}
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"{url}/subjects", headers=headers), timeout=30)
            with refused.value as answer:
                said.append((answer.code, json.loads(answer.read())["error_code"]))
        assert said[0] == said[1]
