"""Declaring messages."""

import dataclasses

import pytest

from raylog.wire.api import ApiKey
from raylog.wire.messages.fetch import FetchRequest, PartitionData
from raylog.wire.messages.registry import request_class, response_class
from raylog.wire.schema import (
    INT32,
    STRING,
    array,
    layout_of,
    message,
    struct,
    versioned,
    versions_of,
    wire,
)


def test_version_ranges() -> None:
    assert versions_of("3") == range(3, 4)
    assert versions_of("2-5") == range(2, 6)
    assert versions_of("4+") == range(4, 2**15)
    assert not versions_of("none")


def test_a_message_must_agree_with_the_api_table() -> None:
    with pytest.raises(TypeError, match="FETCH: versions 4-17"):
        message(ApiKey.FETCH, versions="4-17", flexible="12+")
    with pytest.raises(TypeError, match=r"FETCH: flexible 11\+"):
        message(ApiKey.FETCH, versions="4-18", flexible="11+")


def test_defaults() -> None:
    @struct
    class Inner:
        """Inner."""

        number: int = wire(INT32, default=-1)

    @versioned(versions="0-1")
    class Outer:
        """Outer."""

        text: str = wire(STRING)
        inner: Inner = wire(Inner)
        inners: list[Inner] = wire(array(Inner))
        none: list[int] | None = wire(array(INT32), default=None, nullable="0+")

    first, second = Outer(), Outer()
    assert first == second
    assert (first.text, first.inner, first.inners, first.none) == ("", Inner(), [], None)
    assert first.inner is not second.inner
    assert first.inners is not second.inners
    assert layout_of(Outer).versions == range(2)
    assert layout_of(Inner).versions is None
    with pytest.raises(TypeError, match="int is not a wire message"):
        layout_of(int)


def test_messages_are_slotted_and_keyword_only() -> None:
    assert dataclasses.is_dataclass(FetchRequest)
    assert not hasattr(PartitionData(), "__dict__")
    with pytest.raises(TypeError):
        FetchRequest(1)  # type: ignore[call-arg]  # what is tested


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_registry(key: ApiKey) -> None:
    assert layout_of(request_class(key)).api_key is key
    assert layout_of(response_class(key)).api_key is key
    assert request_class(key).__name__.endswith("Request")
    assert response_class(key).__name__.endswith("Response")


def test_every_message_class_has_described_fields() -> None:
    """Tags do not collide, and tagged fields exist in flexible versions only."""
    for key in ApiKey:
        for cls in (request_class(key), response_class(key)):
            layout = layout_of(cls)
            tagged = [field for field in layout.fields if field.tag is not None]
            assert len({field.tag for field in tagged}) == len(tagged)
            assert all(field.versions.start >= layout.flexible.start for field in tagged)


def test_unstable_version_is_not_announced() -> None:
    assert ApiKey.INIT_PRODUCER_ID.versions == range(6)
    assert layout_of(request_class(ApiKey.INIT_PRODUCER_ID)).versions == range(7)
    assert ApiKey.FETCH.versions == range(4, 19)
