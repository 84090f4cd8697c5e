"""The topics that members of a classic group subscribe to, from their metadata."""

from __future__ import annotations

from collections.abc import Collection

from raylog.wire.errors import DecodeError
from raylog.wire.internal.blobs import BLOB_ELEMENTS_MAX, decode_blob
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription

LIGHT_BYTES_MAX = 16 << 10
"""Decoding this much metadata takes at most 3 ms; larger metadata is read in a thread."""


def topics_of(subscriptions: Collection[bytes]) -> frozenset[str] | None:
    """Return all topics of these subscriptions, or None if they cannot be read.

    The subscriptions come from clients. More than BLOB_ELEMENTS_MAX different topics count as
    unreadable too, because otherwise one group could exhaust the memory.
    """
    topics: set[str] = set()
    try:
        for blob in dict.fromkeys(subscriptions):
            topics.update(decode_blob(ConsumerProtocolSubscription, blob).topics)
            if len(topics) > BLOB_ELEMENTS_MAX:
                return None
    except DecodeError:
        return None
    return frozenset(topics)
