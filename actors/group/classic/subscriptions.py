"""The topics that the members of a classic group subscribe to, as their metadata tells them."""

from __future__ import annotations

from collections.abc import Collection

from raylog.wire.errors import DecodeError
from raylog.wire.internal.blobs import BLOB_ELEMENTS_MAX, decode_blob
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription

LIGHT_BYTES_MAX = 16 << 10
"""So much metadata is decoded in 3 ms at most; a thread reads more than that."""


def topics_of(subscriptions: Collection[bytes]) -> frozenset[str] | None:
    """All topics of these subscriptions; None if they cannot be read.

    Clients make them: more than BLOB_ELEMENTS_MAX different topics are not read either, or one
    group could fill the memory.
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
