"""Encodes and decodes messages with codecs that are generated once and cached.

Decoding treats its input as hostile: any error in it raises DecodeError. Record data is a view of
the input, everything else a copy. Unknown tagged fields are skipped and dropped.
"""

import struct
from typing import TYPE_CHECKING, TypeVar

from raylog.wire.errors import DecodeError, EncodeError, UnsupportedVersion
from raylog.wire.schema import Buffer, layout_of

if TYPE_CHECKING:
    from raylog.wire.codegen.decoder import Decoder
    from raylog.wire.codegen.encoder import Encoder

T = TypeVar("T")

ANY_NUMBER = 1 << 62
"""No limit of elements: the input is our own, or its size limits it enough."""

_decoders: "dict[tuple[type, int], Decoder]" = {}
_encoders: "dict[tuple[type, int], Encoder]" = {}


def decode(cls: type[T], version: int, buf: Buffer, position: int = 0) -> T:
    """Decode the message that fills `buf` from `position` to its end."""
    message, end = decode_from(cls, version, buf, position)
    if end != len(buf):
        raise DecodeError(f"{cls.__name__} v{version}: {len(buf) - end} bytes left over")
    return message


def decode_from(cls: type[T], version: int, buf: Buffer, position: int) -> tuple[T, int]:
    """Decode the message at `position` of `buf`. Returns it and the position after it."""
    message, end, _ = decode_counted(cls, version, buf, position, ANY_NUMBER)
    return message, end


def decode_counted(
    cls: type[T], version: int, buf: Buffer, position: int, elements_max: int
) -> tuple[T, int, int]:
    """Decode the message at `position`. Returns it, the position after it, and its array elements.

    Raises TooManyElements if its arrays have more than `elements_max` elements together, before
    decoding them.
    """
    decoder = _decoders.get((cls, version)) or decoder_of(cls, version)
    view = buf if type(buf) is memoryview else memoryview(buf)
    try:
        message, end, left = decoder(view, position, elements_max)
    except (IndexError, struct.error):
        raise DecodeError(f"{cls.__name__} v{version}: cut off after {len(buf)} bytes") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from None
    assert type(message) is cls
    return message, end, elements_max - left


def encode(message: object, version: int) -> bytes:
    """Encode `message` at `version`."""
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: object, version: int, head: bytes = b"") -> list[Buffer]:
    """Encode `message` after `head` into chunks, with record data by reference.

    The first chunk is a bytearray that belongs to the caller. Raises EncodeError if a value does
    not fit, or would be lost because the version has no field for it.
    """
    cls = type(message)
    encoder = _encoders.get((cls, version)) or encoder_of(cls, version)
    try:
        return encoder(message, bytearray(head))
    except (AttributeError, TypeError, struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def decoder_of(cls: type, version: int) -> "Decoder":
    """The decoder of a message class at a version, generated at the first call."""
    from raylog.wire.codegen.decoder import make_decoder

    decoder = make_decoder(cls, version, _is_flexible(cls, version))
    return _decoders.setdefault((cls, version), decoder)


def encoder_of(cls: type, version: int) -> "Encoder":
    """The encoder of a message class at a version, generated at the first call."""
    from raylog.wire.codegen.encoder import make_encoder

    encoder = make_encoder(cls, version, _is_flexible(cls, version))
    return _encoders.setdefault((cls, version), encoder)


def _is_flexible(cls: type, version: int) -> bool:
    layout = layout_of(cls)
    assert layout.versions is not None, f"{cls.__name__} is a part of a message"
    if version not in layout.versions:
        known = f"{layout.versions.start} to {layout.versions.stop - 1}"
        raise UnsupportedVersion(f"{cls.__name__} has versions {known}, not {version}")
    return version in layout.flexible
