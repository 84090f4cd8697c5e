"""Frames and their headers."""

from dataclasses import replace

import pytest

from raylog.wire.api import ApiKey
from raylog.wire.errors import DecodeError, ErrorCode
from raylog.wire.frame import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from raylog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from raylog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.schema import Buffer


def joined(chunks: list[Buffer]) -> bytes:
    return b"".join(chunks)


@pytest.mark.parametrize("client_id", ["", "me", None])
@pytest.mark.parametrize("version", [3, 4])
def test_request_and_back(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    frame = joined(encode_request(ApiKey.HEARTBEAT, version, 17, client_id, request))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert header == RequestHeader(ApiKey.HEARTBEAT, version, 17, client_id)
    assert decode_request(header, frame[4:], position) == request
    assert decode_request_header(frame, 4) == (header, position + 4)


def test_flexible_header_keeps_the_old_form_of_the_client_id() -> None:
    frame = joined(encode_request(ApiKey.HEARTBEAT, 4, 1, "me", HeartbeatRequest()))
    assert frame[4:17] == b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x02me\x00"


@pytest.mark.parametrize("version", [3, 4])
def test_response_and_back(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = joined(encode_response(ApiKey.HEARTBEAT, version, -5, response))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert len(frame) == 4 + 4 + 6 + (2 if version == 4 else 0)
    assert decode_response(ApiKey.HEARTBEAT, version, frame[4:]) == (-5, response)


def test_length_covers_record_data() -> None:
    records = memoryview(bytes(70_000))
    partition = PartitionData(records=[records[:1], records[1:]])
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    chunks = encode_response(ApiKey.FETCH, 18, 1, response)
    assert [len(chunk) for chunk in chunks[1:3]] == [1, 69_999]
    assert int.from_bytes(chunks[0][:4], "big") == sum(map(len, chunks)) - 4


class TestApiVersions:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])

    def test_response_header_stays_v0(self) -> None:
        frame = joined(encode_response(ApiKey.API_VERSIONS, 4, 9, self.response))
        assert frame[4:12] == b"\x00\x00\x00\x09\x00\x00\x02\x00"  # no header tags; one compact key
        assert decode_response(ApiKey.API_VERSIONS, 4, frame[4:]) == (9, self.response)

    def test_request_of_a_version_to_come(self) -> None:
        """Its header can be read, so that the refusal carries the correlation id."""
        frame = joined(encode_request(ApiKey.API_VERSIONS, 4, 9, "me", ApiVersionsRequest()))
        frame = frame[4:6] + (99).to_bytes(2, "big") + frame[8:]
        header, _ = decode_request_header(frame)
        assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 9, "me")

    def test_refusal_is_v0_whatever_was_asked(self) -> None:
        refusal = replace(self.response, error_code=ErrorCode.UNSUPPORTED_VERSION)
        frame = joined(encode_response(ApiKey.API_VERSIONS, 99, 9, refusal))
        assert frame[8:] == b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
        assert decode_response(ApiKey.API_VERSIONS, 4, frame[4:]) == (9, refusal)


def test_unknown_api() -> None:
    frame = b"\x03\xe7\x00\x02\x00\x00\x00\x07\x00\x01x" + b"anything"
    assert decode_request_header(frame) == (RequestHeader(999, 2, 7, "x"), 11)


def test_header_tags_are_skipped() -> None:
    header = b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff"
    assert decode_request_header(header + b"\x01\x00\x02xy")[1] == len(header) + 5
    response = b"\x00\x00\x00\x01" + b"\x01\x00\x01x" + b"\x00\x00\x00\x00\x00\x1b\x00"
    assert decode_response(ApiKey.HEARTBEAT, 4, response)[1] == HeartbeatResponse(error_code=27)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff",  # cut
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x03me",  # client id runs past the end
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xfe\x00",  # negative length
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x01\xff\x00",  # no UTF-8
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff",  # no tags where tags should be
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x01\x00\x09x",  # tag runs past the end
    ],
)
def test_malformed_request_header(header: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(header)


@pytest.mark.parametrize("response", [b"", b"\x00\x00\x01", b"\x00\x00\x00\x01"])
def test_malformed_response_header(response: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_response(ApiKey.HEARTBEAT, 4, response)
