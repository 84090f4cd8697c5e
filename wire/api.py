"""The requests Raylog speaks: number, versions and limits of each, without importing any message.

The versions are those of Apache Kafka 4.1 to 4.3. Each message module repeats its own range, and
`schema.message` refuses a class that disagrees with this table.

Limits: a decoded request takes many times its size in memory, and its elements take time to make
and to handle. A request beyond its limit is not decoded, and its connection is closed, as for any
request that cannot be read. Apache Kafka has no such limits, except that one request may create at
most 10,000 partitions, so they are far above what clients have reason to send. All partitions of a
cluster with 10,000 partitions, each of a topic of its own, are 20,000 elements: topics and
partitions.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

LIGHT_ELEMENTS_MAX = 1_000
"""Decoding this many takes about a millisecond."""
ELEMENT_BYTES = 160
"""Approximate memory of an element: an object with its fields."""

_KIB, _MIB = 1 << 10, 1 << 20


class RequestLimit(NamedTuple):
    """The most bytes of a request, header included, and the most elements of all its arrays."""

    bytes_max: int
    elements_max: int


USUAL_BYTES_MAX = 256 * _KIB
"""No API has a lower limit."""
_ONE_THING = RequestLimit(USUAL_BYTES_MAX, 500)
"""One group, transaction or broker, or the whole cluster: a few strings of at most 32 KiB."""
_MEMBER = RequestLimit(8 * _MIB, 500)
"""One member's metadata for each of its assignors: its topics and partitions, as bytes. Clients
have two or three assignors, and each generation reads the metadata of all members."""
_SEVERAL = RequestLimit(4 * _MIB, 20_000)
"""Members, groups, or transactions: a list of strings."""
_PARTITIONS = RequestLimit(8 * _MIB, 40_000)
"""Partitions by topic, with a few numbers each; twice in Fetch, which also names forgotten ones."""
_TOPICS = RequestLimit(8 * _MIB, 20_000)
"""Topics, or partitions of topics that have several."""
_CHANGES = RequestLimit(8 * _MIB, 10_000)
"""Changes: Apache Kafka's controller accepts a request that writes 10,000 records."""
_PLACEMENTS = RequestLimit(8 * _MIB, 50_000)
"""10,000 partitions with four replicas each, or topics with their settings."""
_RECORDS = RequestLimit((1 << 31) - 1, 40_000)
"""Partitions with record batches: only `socket.request.max.bytes` bounds the bytes."""


class ApiKey(IntEnum):
    """A request type: Kafka's number, its first and last version, the first flexible one, a limit.

    Versions are inclusive; flexible are those of KIP-482. `unstable` marks a newest version that
    is coded but not announced, because Kafka itself does not announce it unless told to.
    """

    first_version: int
    last_version: int
    flexible_from: int | None
    limit: RequestLimit
    versions: range
    """To serve and announce: without an unstable one."""

    def __new__(
        cls,
        number: int,
        first: int = 0,
        last: int = 0,
        flexible_from: int | None = None,
        limit: RequestLimit = _ONE_THING,
        unstable: bool = False,
    ) -> ApiKey:
        """Make one of the rows below."""
        key = int.__new__(cls, number)
        key._value_ = number
        key.first_version, key.last_version, key.flexible_from = first, last, flexible_from
        key.limit, key.versions = limit, range(first, last + (not unstable))
        return key

    PRODUCE = 0, 3, 13, 9, _RECORDS
    FETCH = 1, 4, 18, 12, _PARTITIONS
    LIST_OFFSETS = 2, 1, 11, 6, _PARTITIONS
    METADATA = 3, 0, 13, 9, _TOPICS
    OFFSET_COMMIT = 8, 2, 10, 8, _PARTITIONS
    OFFSET_FETCH = 9, 1, 10, 6, _PARTITIONS
    FIND_COORDINATOR = 10, 0, 6, 3, _SEVERAL
    JOIN_GROUP = 11, 0, 9, 6, _MEMBER
    HEARTBEAT = 12, 0, 4, 4
    LEAVE_GROUP = 13, 0, 5, 4, _SEVERAL
    SYNC_GROUP = 14, 0, 5, 4, RequestLimit(16 * _MIB, 20_000)  # assignments of all members
    DESCRIBE_GROUPS = 15, 0, 6, 5, _SEVERAL
    LIST_GROUPS = 16, 0, 5, 3
    SASL_HANDSHAKE = 17, 0, 1, None
    API_VERSIONS = 18, 0, 4, 3
    CREATE_TOPICS = 19, 2, 7, 5, _PLACEMENTS
    DELETE_TOPICS = 20, 1, 6, 4, _CHANGES
    DELETE_RECORDS = 21, 0, 2, 2, _PARTITIONS
    # The last version is two-phase commit (KIP-939), unfinished in 4.3.
    INIT_PRODUCER_ID = 22, 0, 6, 2, _ONE_THING, True
    OFFSET_FOR_LEADER_EPOCH = 23, 2, 4, 4, _PARTITIONS
    ADD_PARTITIONS_TO_TXN = 24, 0, 5, 3, _CHANGES
    ADD_OFFSETS_TO_TXN = 25, 0, 4, 3
    END_TXN = 26, 0, 5, 3
    WRITE_TXN_MARKERS = 27, 1, 2, 1, _PARTITIONS
    TXN_OFFSET_COMMIT = 28, 0, 5, 3, _PARTITIONS
    DESCRIBE_ACLS = 29, 1, 3, 2
    CREATE_ACLS = 30, 1, 3, 2
    DELETE_ACLS = 31, 1, 3, 2
    DESCRIBE_CONFIGS = 32, 1, 4, 4, _TOPICS
    ALTER_CONFIGS = 33, 0, 2, 2, _CHANGES
    ALTER_REPLICA_LOG_DIRS = 34, 1, 2, 2
    DESCRIBE_LOG_DIRS = 35, 1, 5, 2, _TOPICS
    SASL_AUTHENTICATE = 36, 0, 2, 2
    CREATE_PARTITIONS = 37, 0, 3, 2, _PLACEMENTS
    CREATE_DELEGATION_TOKEN = 38, 1, 3, 2
    RENEW_DELEGATION_TOKEN = 39, 1, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, 1, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 1, 3, 2
    DELETE_GROUPS = 42, 0, 2, 2, _SEVERAL
    ELECT_LEADERS = 43, 0, 2, 2, _CHANGES
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1, _CHANGES
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, 0, _PLACEMENTS
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0, _PARTITIONS
    OFFSET_DELETE = 47, 0, 0, None, _PARTITIONS
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0
    DESCRIBE_QUORUM = 55, 0, 2, 0
    UPDATE_FEATURES = 57, 0, 2, 0
    DESCRIBE_CLUSTER = 60, 0, 2, 0
    DESCRIBE_PRODUCERS = 61, 0, 0, 0, _PARTITIONS
    UNREGISTER_BROKER = 64, 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0, _SEVERAL
    LIST_TRANSACTIONS = 66, 0, 2, 0, _SEVERAL
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1, 0, _PARTITIONS
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, 0, _SEVERAL
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0, 0
    PUSH_TELEMETRY = 72, 0, 0, 0, RequestLimit(8 * _MIB, 500)  # too large: an error code says so
    LIST_CONFIG_RESOURCES = 74, 0, 1, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0, _TOPICS
    SHARE_GROUP_HEARTBEAT = 76, 1, 1, 0
    SHARE_GROUP_DESCRIBE = 77, 1, 1, 0
    SHARE_FETCH = 78, 1, 2, 0
    SHARE_ACKNOWLEDGE = 79, 1, 2, 0
    ADD_RAFT_VOTER = 80, 0, 1, 0
    REMOVE_RAFT_VOTER = 81, 0, 0, 0
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 1, 0
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, 0, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, 0, 0


def limit_of(api_key: int) -> RequestLimit:
    """The limit of an API, known or not."""
    return _LIMITS.get(api_key, _ONE_THING)


_LIMITS: dict[int, RequestLimit] = {int(key): key.limit for key in ApiKey}
