"""UUIDs in Kafka's form."""

import random
import uuid

import pytest

from raylog.wire.uuids import ZERO_UUID, from_base64, random_uuid, to_base64


def test_text_form() -> None:
    assert to_base64(ZERO_UUID) == "A" * 22
    assert to_base64(b"\xff\xef" + bytes(14)) == "_-8" + "A" * 19
    assert from_base64("_-8" + "A" * 19) == b"\xff\xef" + bytes(14)


@pytest.mark.parametrize("text", [*("A" * size for size in (0, 1, 21, 23, 24)), "+" * 22])
def test_refused_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID in base64"):
        from_base64(text)


@pytest.mark.parametrize("last", ["é", "B", "=", " "])
def test_refused_last_character(last: str) -> None:
    """ "B" would leave bits over: only one text stands for a UUID."""
    with pytest.raises(ValueError, match="is not a UUID in base64"):
        from_base64("A" * 21 + last)


def test_random_ones() -> None:
    rng = random.Random(5)
    made = {random_uuid(rng) for _ in range(2000)}
    assert len(made) == 2000
    assert all(uuid.UUID(bytes=one).version == 4 for one in made)
    assert all(uuid.UUID(bytes=one).variant == uuid.RFC_4122 for one in made)
    assert not any(to_base64(one).startswith("-") for one in made)
    assert all(from_base64(to_base64(one)) == one for one in made)
    assert random_uuid(random.Random(5)) in made
