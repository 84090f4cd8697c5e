"""For any bytes, decoding returns a message or raises DecodeError, within bounded memory."""

import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.wire.api import ApiKey
from raylog.wire.codec import decode, encode
from raylog.wire.errors import DecodeError, UnsupportedVersion
from raylog.wire.frame import decode_request, decode_request_header, decode_response
from tests.support.messages import ALL_CASES, BOUNDED, Case, messages, params

MUTATIONS = 24
INTERESTING = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff")
MEMORY_MAX = 256 * 1024


def mutated(encoded: bytes, rng: random.Random) -> bytes:
    """`encoded` with one to three places cut, overwritten, repeated or extended."""
    data = bytearray(encoded)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = bytes((rng.randrange(256),))
            case 2:
                piece = rng.choice(INTERESTING)
                data[at : at + len(piece)] = piece
            case 3:
                data[at:at] = rng.choice(INTERESTING)
            case 4:
                data[at:at] = data[at : at + rng.randrange(9)]
    return bytes(data)


@pytest.mark.parametrize("case", params(ALL_CASES))
@settings(BOUNDED, max_examples=2)
@given(data=st.data())
def test_mutated_messages(case: Case, data: st.DataObject) -> None:
    encoded = encode(data.draw(messages(case)), case.version)
    rng = random.Random(data.draw(st.integers(0, 2**32 - 1)))
    for _ in range(MUTATIONS):
        hostile = mutated(encoded, rng)
        try:
            decoded: object = decode(case.cls, case.version, hostile)
        except DecodeError:
            continue
        # What was accepted is a proper message: it has one form on the wire and keeps it.
        written = encode(decoded, case.version)
        assert encode(decode(case.cls, case.version, written), case.version) == written


@pytest.mark.parametrize("case", params(ALL_CASES))
def test_counts_and_lengths_that_lie(case: Case) -> None:
    """A few bytes that promise gigabytes cost no memory."""
    with suppress(DecodeError):
        decode(case.cls, case.version, b"")  # compiles the decoder outside the measurement
    tracemalloc.start()
    try:
        for size in (1, 2, 5, 17, 64, 300):
            for piece in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00", b"\x01", b"\x02"):
                with suppress(DecodeError):
                    decode(case.cls, case.version, (piece * size)[:size])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_MAX


@settings(BOUNDED, max_examples=400)
@given(st.binary(max_size=60))
def test_random_request_frames(frame: bytes) -> None:
    with suppress(DecodeError):
        header, position = decode_request_header(frame)
        assert 10 <= position <= len(frame)
        if isinstance(header.api_key, ApiKey):
            with suppress(UnsupportedVersion):
                decode_request(header, frame, position)


@settings(BOUNDED, max_examples=400)
@given(st.sampled_from(ApiKey), st.binary(max_size=60))
def test_random_response_frames(api_key: ApiKey, frame: bytes) -> None:
    with suppress(DecodeError):
        decode_response(api_key, api_key.versions[-1], frame)
