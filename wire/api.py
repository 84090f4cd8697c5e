"""The requests Raylog speaks: their keys and versions, without importing any message.

Versions are those of Apache Kafka 4.1 to 4.3. The message modules repeat their own ranges, and
`schema.message` refuses a class that disagrees with this table.
"""

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Kafka's number of each request type."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiVersionRange(NamedTuple):
    """Versions of one API: `first` to `last` inclusive, flexible (KIP-482) from `flexible_from`.

    `unstable` marks a newest version that is coded but not announced, because Kafka itself
    does not announce it unless told to.
    """

    first: int
    last: int
    flexible_from: int | None
    unstable: bool = False


VERSIONS: dict[ApiKey, ApiVersionRange] = {
    ApiKey.PRODUCE: ApiVersionRange(3, 13, 9),
    ApiKey.FETCH: ApiVersionRange(4, 18, 12),
    ApiKey.LIST_OFFSETS: ApiVersionRange(1, 11, 6),
    ApiKey.METADATA: ApiVersionRange(0, 13, 9),
    ApiKey.OFFSET_COMMIT: ApiVersionRange(2, 10, 8),
    ApiKey.OFFSET_FETCH: ApiVersionRange(1, 10, 6),
    ApiKey.FIND_COORDINATOR: ApiVersionRange(0, 6, 3),
    ApiKey.JOIN_GROUP: ApiVersionRange(0, 9, 6),
    ApiKey.HEARTBEAT: ApiVersionRange(0, 4, 4),
    ApiKey.LEAVE_GROUP: ApiVersionRange(0, 5, 4),
    ApiKey.SYNC_GROUP: ApiVersionRange(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: ApiVersionRange(0, 6, 5),
    ApiKey.LIST_GROUPS: ApiVersionRange(0, 5, 3),
    ApiKey.SASL_HANDSHAKE: ApiVersionRange(0, 1, None),
    ApiKey.API_VERSIONS: ApiVersionRange(0, 4, 3),
    ApiKey.CREATE_TOPICS: ApiVersionRange(2, 7, 5),
    ApiKey.DELETE_TOPICS: ApiVersionRange(1, 6, 4),
    ApiKey.DELETE_RECORDS: ApiVersionRange(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: ApiVersionRange(
        0, 6, 2, unstable=True
    ),  # 6 is two-phase commit (KIP-939), unfinished in 4.3
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiVersionRange(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiVersionRange(0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiVersionRange(0, 4, 3),
    ApiKey.END_TXN: ApiVersionRange(0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: ApiVersionRange(1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: ApiVersionRange(0, 5, 3),
    ApiKey.DESCRIBE_ACLS: ApiVersionRange(1, 3, 2),
    ApiKey.CREATE_ACLS: ApiVersionRange(1, 3, 2),
    ApiKey.DELETE_ACLS: ApiVersionRange(1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: ApiVersionRange(1, 4, 4),
    ApiKey.ALTER_CONFIGS: ApiVersionRange(0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiVersionRange(1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiVersionRange(1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: ApiVersionRange(0, 2, 2),
    ApiKey.CREATE_PARTITIONS: ApiVersionRange(0, 3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiVersionRange(1, 3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiVersionRange(1, 2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiVersionRange(1, 2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiVersionRange(1, 3, 2),
    ApiKey.DELETE_GROUPS: ApiVersionRange(0, 2, 2),
    ApiKey.ELECT_LEADERS: ApiVersionRange(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiVersionRange(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiVersionRange(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiVersionRange(0, 0, 0),
    ApiKey.OFFSET_DELETE: ApiVersionRange(0, 0, None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiVersionRange(0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiVersionRange(0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0, 0),
    ApiKey.DESCRIBE_QUORUM: ApiVersionRange(0, 2, 0),
    ApiKey.UPDATE_FEATURES: ApiVersionRange(0, 2, 0),
    ApiKey.DESCRIBE_CLUSTER: ApiVersionRange(0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: ApiVersionRange(0, 0, 0),
    ApiKey.UNREGISTER_BROKER: ApiVersionRange(0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiVersionRange(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: ApiVersionRange(0, 2, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiVersionRange(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiVersionRange(0, 1, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiVersionRange(0, 0, 0),
    ApiKey.PUSH_TELEMETRY: ApiVersionRange(0, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: ApiVersionRange(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiVersionRange(0, 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiVersionRange(1, 1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiVersionRange(1, 1, 0),
    ApiKey.SHARE_FETCH: ApiVersionRange(1, 2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: ApiVersionRange(1, 2, 0),
    ApiKey.ADD_RAFT_VOTER: ApiVersionRange(0, 1, 0),
    ApiKey.REMOVE_RAFT_VOTER: ApiVersionRange(0, 0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiVersionRange(0, 0, 0),
}


def supported_versions(api_key: ApiKey) -> range:
    """Versions of `api_key` to serve and announce; an unstable newest one is left out."""
    versions = VERSIONS[api_key]
    return range(versions.first, versions.last + (0 if versions.unstable else 1))
