"""Frames: a 4-byte length, a request or response header, and a message.

Flexible versions (KIP-482) use request header v2 and response header v1. Both keep the client id as
a non-compact string, since it is read before the version is known to be supported. ApiVersions
responses keep header v0, so that a client can read a response of a version that it did not request
(KIP-511).
"""

from struct import Struct
from typing import NamedTuple

from raylog.wire.api import ApiKey
from raylog.wire.codec import decode, encode_chunks
from raylog.wire.codegen.primitives import skip_tags
from raylog.wire.errors import DecodeError, EncodeError, ErrorCode
from raylog.wire.messages.registry import request_class, response_class
from raylog.wire.schema import Buffer

LENGTH_BYTES = 4
_LENGTH = Struct(">i")
_REQUEST = Struct(">hhih")  # api key, version, correlation id, length of the client id
_RESPONSE = Struct(">ii")  # frame length, correlation id
_API_KEYS = {int(key): key for key in ApiKey}
_NEVER = 1 << 15
_FLEXIBLE_FROM = {
    int(key): _NEVER if key.flexible_from is None else key.flexible_from for key in ApiKey
}
_FRAME_BYTES_MAX = 0x7FFFFFFF
HEADER_TAGS_MAX = 100
"""The most tagged fields of a header. None is defined yet."""


class RequestHeader(NamedTuple):
    """The header of a request. `api_key` is a plain int if Raylog does not know the API."""

    api_key: ApiKey | int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buf: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Decode a header at `position`, after the length. Returns it and the start of the message.

    The version may be unsupported: the header of a newer version is known, so the response can have
    the correlation id.
    """
    if len(buf) - position < _REQUEST.size:
        raise DecodeError(f"request header cut off after {len(buf) - position} bytes")
    key, version, correlation_id, size = _REQUEST.unpack_from(buf, position)
    position += _REQUEST.size
    end = position + max(size, 0)
    if size < -1 or end > len(buf):
        raise DecodeError(f"client id of {size} bytes with {len(buf) - position} left")
    try:
        client_id = None if size < 0 else str(buf[position:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"client id: {error}") from None
    api_key = _API_KEYS.get(key)
    if api_key is None:
        return RequestHeader(key, version, correlation_id, client_id), end
    if version >= _FLEXIBLE_FROM[key]:
        end = _skip_header_tags(buf, end)
    return RequestHeader(api_key, version, correlation_id, client_id), end


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, request: object
) -> list[Buffer]:
    """Encode a request frame into chunks, with its length."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    head = bytes(LENGTH_BYTES) + _REQUEST.pack(api_key, version, correlation_id, size) + name
    if version >= _FLEXIBLE_FROM[api_key]:
        head += b"\x00"
    return _with_length(encode_chunks(request, version, head))


def encode_response(
    api_key: ApiKey, version: int, correlation_id: int, response: object
) -> list[Buffer]:
    """Encode a response frame into chunks, with its length.

    An ApiVersions request of an unknown version is answered in version 0.
    """
    if api_key is ApiKey.API_VERSIONS:
        version = version if version in api_key.versions else 0
        return _with_length(encode_chunks(response, version, _RESPONSE.pack(0, correlation_id)))
    head = _RESPONSE.pack(0, correlation_id)
    if version >= _FLEXIBLE_FROM[api_key]:
        head += b"\x00"
    return _with_length(encode_chunks(response, version, head))


def decode_request(header: RequestHeader, buf: Buffer, position: int) -> object:
    """Decode the request after a header of a known API."""
    assert isinstance(header.api_key, ApiKey)
    return decode(request_class(header.api_key), header.api_version, buf, position)


def decode_response(api_key: ApiKey, version: int, buf: Buffer) -> tuple[int, object]:
    """Decode a response without its length. Returns correlation id and message."""
    if len(buf) < _LENGTH.size:
        raise DecodeError(f"response header cut off after {len(buf)} bytes")
    (correlation_id,) = _LENGTH.unpack_from(buf)
    position = _LENGTH.size
    if api_key is ApiKey.API_VERSIONS:
        if buf[position : position + 2] == _UNSUPPORTED_VERSION:
            version = 0
    elif version >= _FLEXIBLE_FROM[api_key]:
        position = _skip_header_tags(buf, position)
    return correlation_id, decode(response_class(api_key), version, buf, position)


_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _skip_header_tags(buf: Buffer, position: int) -> int:
    try:
        return skip_tags(buf, position + 1, buf[position], HEADER_TAGS_MAX)[0]
    except IndexError:
        raise DecodeError(f"header cut off after {len(buf)} bytes") from None


def _with_length(chunks: list[Buffer]) -> list[Buffer]:
    """Fill in the length at the start of the first chunk."""
    size = sum(map(len, chunks)) - LENGTH_BYTES
    if size > _FRAME_BYTES_MAX:
        raise EncodeError(f"a frame of {size} bytes exceeds the 32-bit length")
    first = chunks[0]
    assert isinstance(first, bytearray)
    _LENGTH.pack_into(first, 0, size)
    return chunks
