"""Every message at every version survives encoding and decoding."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.wire.codec import decode, decode_from, encode, encode_chunks
from raylog.wire.errors import DecodeError
from tests.support.messages import ALL_CASES, BOUNDED, Case, messages, params, written_form


@pytest.mark.parametrize("case", params(ALL_CASES))
@BOUNDED
@given(data=st.data())
def test_round_trip(case: Case, data: st.DataObject) -> None:
    message = data.draw(messages(case))
    before = deepcopy(message)
    encoded = encode(message, case.version)
    assert message == before, "encoding must not change the message"
    assert b"".join(encode_chunks(message, case.version)) == encoded
    decoded: object = decode(case.cls, case.version, encoded)
    assert decoded == written_form(message)
    assert encode(decoded, case.version) == encoded

    behind: object
    behind, position = decode_from(case.cls, case.version, b"??" + encoded + b"!", 2)
    assert (behind, position) == (decoded, len(encoded) + 2)
    with pytest.raises(DecodeError):
        decode(case.cls, case.version, encoded + b"\0")
    for size in {len(encoded) // 2, max(len(encoded) - 1, 0)} - {len(encoded)}:
        with pytest.raises(DecodeError):
            decode_from(case.cls, case.version, encoded[:size], 0)
