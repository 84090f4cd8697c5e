"""Frames that Apache Kafka and its Java clients really exchanged."""

import pytest

from raylog.wire.api import ApiKey
from raylog.wire.frame import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from raylog.wire.internal.blobs import decode_blob, encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.sync_group import SyncGroupRequest
from tests.support.frames import Frame, read_frames

FRAMES = read_frames()
REQUESTS = [frame for frame in FRAMES if frame.direction == "request"]
RESPONSES = [frame for frame in FRAMES if frame.direction == "response"]


@pytest.mark.parametrize("frame", REQUESTS, ids=str)
def test_request(frame: Frame) -> None:
    header, position = decode_request_header(frame.data)
    assert (header.api_key, header.api_version) == (frame.api_key, frame.version)
    request = decode_request(header, frame.data, position)
    again = encode_request(
        frame.api_key, frame.version, header.correlation_id, header.client_id, request
    )
    assert b"".join(again)[4:] == frame.data


@pytest.mark.parametrize("frame", RESPONSES, ids=str)
def test_response(frame: Frame) -> None:
    correlation_id, response = decode_response(frame.api_key, frame.version, frame.data)
    again = encode_response(frame.api_key, frame.version, correlation_id, response)
    assert b"".join(again)[4:] == frame.data


def member_blobs() -> list[tuple[type, bytes]]:
    """What the Java consumer put into its join, and as leader into its sync."""
    blobs: list[tuple[type, bytes]] = []
    for frame in REQUESTS:
        header, position = decode_request_header(frame.data)
        if frame.api_key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            request = decode_request(header, frame.data, position)
            match request:
                case JoinGroupRequest():
                    blobs += [(ConsumerProtocolSubscription, p.metadata) for p in request.protocols]
                case SyncGroupRequest():
                    given = request.assignments
                    blobs += [(ConsumerProtocolAssignment, a.assignment) for a in given]
    return blobs


def test_consumer_protocol() -> None:
    blobs = member_blobs()
    assert {cls for cls, _ in blobs} == {ConsumerProtocolSubscription, ConsumerProtocolAssignment}
    for cls, blob in blobs:
        decoded: object = decode_blob(cls, blob)
        assert encode_value(decoded, int.from_bytes(blob[:2], "big")) == blob


def test_the_capture_is_a_broad_one() -> None:
    """A capture in which tools failed would test little and still pass."""
    hot = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.API_VERSIONS}
    for frames in (REQUESTS, RESPONSES):
        keys = {frame.api_key for frame in frames}
        assert hot <= keys
        assert len(keys) >= 40
