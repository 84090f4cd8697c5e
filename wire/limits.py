"""How large a request of each API may be: bytes, and elements of its arrays together.

Objects take many times the bytes that they are made of, and time to make and to handle. What
exceeds its limit is not decoded, and its connection is closed, as for any request that cannot be
read. Apache Kafka has no such limits, other than 10,000 partitions that one request may create, so
they are far above what clients have reason to send. All partitions of a cluster with 10,000
partitions, each of a topic of its own, are 20,000 elements: topics and partitions.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.wire.api import ApiKey

LIGHT_ELEMENTS_MAX = 1_000
"""So many are decoded in about a millisecond."""
ELEMENT_BYTES = 160
"""What an element takes in memory, about, as an object with its fields."""

_KIB, _MIB = 1 << 10, 1 << 20


class RequestLimit(NamedTuple):
    """Most bytes of a request, header included, and most elements."""

    bytes_max: int
    elements_max: int


USUAL_BYTES_MAX = 256 * _KIB
"""No API has a lower limit."""
_ONE_THING = RequestLimit(USUAL_BYTES_MAX, 500)
"""One group, transaction, broker, or the whole cluster: a few texts of at most 32 KiB."""
_MEMBER = RequestLimit(8 * _MIB, 500)
"""Metadata of one member for each of its assignors: its topics and partitions, as bytes. Clients
have two or three assignors, and each generation looks at those of all members."""
_SEVERAL = RequestLimit(4 * _MIB, 20_000)
"""Members, groups, or transactions: a list of texts."""
_PARTITIONS = RequestLimit(8 * _MIB, 40_000)
"""Partitions with some figures each, by topic; twice in Fetch, which also names those it drops."""
_TOPICS = RequestLimit(8 * _MIB, 20_000)
"""Topics, or partitions of topics that have several."""
_CHANGES = RequestLimit(8 * _MIB, 10_000)
"""Things that change: Apache Kafka's controller takes a request that makes 10,000 records."""
_PLACEMENTS = RequestLimit(8 * _MIB, 50_000)
"""10,000 partitions with four replicas each, or topics with their settings."""
_RECORDS = RequestLimit((1 << 31) - 1, 40_000)
"""Partitions with record batches: `socket.request.max.bytes` alone bounds the bytes."""

LIMITS: dict[ApiKey, RequestLimit] = {
    ApiKey.PRODUCE: _RECORDS,
    ApiKey.FETCH: _PARTITIONS,
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.METADATA: _TOPICS,
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_FETCH: _PARTITIONS,
    ApiKey.JOIN_GROUP: _MEMBER,
    ApiKey.SYNC_GROUP: RequestLimit(16 * _MIB, 20_000),  # assignments of all members
    ApiKey.LEAVE_GROUP: _SEVERAL,
    ApiKey.FIND_COORDINATOR: _SEVERAL,
    ApiKey.DESCRIBE_GROUPS: _SEVERAL,
    ApiKey.DELETE_GROUPS: _SEVERAL,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _PARTITIONS,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _SEVERAL,
    ApiKey.DESCRIBE_TRANSACTIONS: _SEVERAL,
    ApiKey.LIST_TRANSACTIONS: _SEVERAL,
    ApiKey.CREATE_TOPICS: _PLACEMENTS,
    ApiKey.CREATE_PARTITIONS: _PLACEMENTS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _PLACEMENTS,
    ApiKey.DESCRIBE_CONFIGS: _TOPICS,
    ApiKey.ALTER_CONFIGS: _CHANGES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CHANGES,
    ApiKey.DELETE_TOPICS: _CHANGES,
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN: _CHANGES,
    ApiKey.WRITE_TXN_MARKERS: _PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.DESCRIBE_LOG_DIRS: _TOPICS,
    ApiKey.ELECT_LEADERS: _CHANGES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _PARTITIONS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS: _PARTITIONS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _TOPICS,
    ApiKey.PUSH_TELEMETRY: RequestLimit(8 * _MIB, 500),  # what is too large is told by a code
}
"""What differs from `_ONE_THING`, which all other requests are."""


def limit_of(api_key: int) -> RequestLimit:
    """The limit of an API, known or not."""
    return _BY_NUMBER.get(api_key, _ONE_THING)


_BY_NUMBER: dict[int, RequestLimit] = {int(key): limit for key, limit in LIMITS.items()}
