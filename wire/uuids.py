"""Topic ids and other UUIDs: 16 bytes, printed in Kafka's URL-safe base64 without padding."""

import base64
from typing import Protocol

ZERO_UUID = bytes(16)  # "no id", never assigned


class Chance(Protocol):
    """A source of random numbers, such as a `random.Random`."""

    def getrandbits(self, k: int, /) -> int:
        """An integer of `k` random bits."""

    def randrange(self, start: int, stop: int | None = None, /) -> int:
        """An integer from `start` to below `stop`; with one argument, from 0 to below it."""


def to_base64(uuid: bytes) -> str:
    """The 22 characters that Kafka's tools print."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def from_base64(text: str) -> bytes:
    """Parse the text of `to_base64`. Raises ValueError if it is anything else."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a UUID in base64") from error
    if len(uuid) != 16 or to_base64(uuid) != text:  # the decoder also takes "+" and "/"
        raise ValueError(f"{text!r} is not a UUID in base64")
    return uuid


def random_uuid(rng: Chance) -> bytes:
    """A random (version 4) UUID.

    Ids whose text starts with "-" are drawn again, as in Kafka, because command lines would take
    them for options. The reserved ids 0 and 1 are not version 4 UUIDs.
    """
    while True:
        bits = rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (2 << 62)
        uuid = bits.to_bytes(16, "big")
        if not to_base64(uuid).startswith("-"):
            return uuid
