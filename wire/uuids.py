"""Topic ids and other UUIDs: 16 bytes, shown in Kafka's URL-safe unpadded base64."""

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  # only the type; the generator is handed in

ZERO_UUID = bytes(16)  # "no id"; never given to anything


def to_base64(uuid: bytes) -> str:
    """The 22 characters that Kafka's tools print."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def from_base64(text: str) -> bytes:
    """The 16 bytes of `to_base64`'s text; ValueError if it is anything else."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a UUID in base64") from error
    if len(uuid) != 16 or to_base64(uuid) != text:  # the decoder also takes "+" and "/"
        raise ValueError(f"{text!r} is not a UUID in base64")
    return uuid


def random_uuid(rng: "Random") -> bytes:
    """A random (version 4) UUID.

    Ids whose text starts with "-" are drawn again, as in Kafka: a command line would take them
    for options. The reserved ids, 0 and 1, are no version 4 UUIDs.
    """
    while True:
        bits = rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (2 << 62)
        uuid = bits.to_bytes(16, "big")
        if not to_base64(uuid).startswith("-"):
            return uuid
